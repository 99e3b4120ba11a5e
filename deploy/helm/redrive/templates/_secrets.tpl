{{/* What of the values is secret, and so goes into the Secret of the chart. Argument: the root. Gives YAML. */}}
{{- define "redrive.secretData" -}}
{{- $v := .Values -}}
{{- $data := dict -}}
{{- if and $v.kafka.sasl.enabled $v.kafka.sasl.password }}{{- $_ := set $data "sasl-password" $v.kafka.sasl.password }}{{- end -}}
{{- if and $v.kafka.sasl.enabled $v.kafka.sasl.oauth.clientSecret }}{{- $_ := set $data "oauth-client-secret" $v.kafka.sasl.oauth.clientSecret }}{{- end -}}
{{- if $v.replayer.enabled -}}
{{- if and (include "redrive.postgres" .) $v.ledger.url (not $v.ledger.existingSecret.name) }}{{- $_ := set $data "ledger-url" $v.ledger.url }}{{- end -}}
{{- with $v.replayer.auth.tokens }}{{- $_ := set $data "tokens.yaml" (toYaml .) }}{{- end -}}
{{- end -}}
{{- toYaml $data -}}
{{- end }}

{{/*
The volumes with secrets that a pod mounts: where, from which Secret, and which of its keys under which name.
Argument: {root, component, credentials}. The component is forwarder, replayer, migrations or topics. Gives YAML: {NAME: {path, secret, items}}.
*/}}
{{- define "redrive.secretMounts" -}}
{{- $v := .root.Values -}}
{{- $own := include "redrive.secretName" .root -}}
{{- $mounts := dict -}}
{{- if ne .component "migrations" -}}
{{- if $v.kafka.tls.enabled -}}
{{- with $v.kafka.tls.caSecret -}}
{{- if .name }}{{- $_ := set $mounts "kafka-ca" (dict "secret" .name "items" (dict .key "ca.crt")) }}{{- end -}}
{{- end -}}
{{- $client := $v.kafka.tls.clientSecret -}}
{{- if $client.name -}}
{{- $_ := set $mounts "kafka-client" (dict "secret" (default $client.name .credentials.tlsSecretName) "items" (dict $client.certKey "tls.crt" $client.keyKey "tls.key")) -}}
{{- end -}}
{{- end -}}
{{- $sasl := $v.kafka.sasl -}}
{{- if $sasl.enabled -}}
{{- if eq $sasl.mechanism "OAUTHBEARER" -}}
{{- $o := $sasl.oauth -}}
{{- if $o.clientSecret -}}
{{- $_ := set $mounts "kafka-oauth" (dict "secret" $own "items" (dict "oauth-client-secret" "client-secret")) -}}
{{- else if $o.existingSecret.name -}}
{{- $name := default $o.existingSecret.name .credentials.saslSecretName -}}
{{- if $o.tokenEndpoint -}}
{{- $_ := set $mounts "kafka-oauth" (dict "secret" $name "items" (dict $o.existingSecret.clientSecretKey "client-secret")) -}}
{{- else -}}
{{- $_ := set $mounts "kafka-oauth" (dict "secret" $name "items" (dict $o.existingSecret.tokenKey "token")) -}}
{{- end -}}
{{- end -}}
{{- else if ne $sasl.mechanism "AWS_MSK_IAM" -}}
{{- if $sasl.existingSecret.name -}}
{{- $_ := set $mounts "kafka-sasl" (dict "secret" (default $sasl.existingSecret.name .credentials.saslSecretName) "items" (dict $sasl.existingSecret.passwordKey "password")) -}}
{{- else -}}
{{- $_ := set $mounts "kafka-sasl" (dict "secret" $own "items" (dict "sasl-password" "password")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if has .component (list "replayer" "migrations") -}}
{{- if include "redrive.postgres" .root -}}
{{- $secret := $v.ledger.existingSecret -}}
{{- if and (eq .component "migrations") $v.ledger.migrations.existingSecret.name -}}
{{- $secret = merge (dict "passwordKey" "") (deepCopy $v.ledger.migrations.existingSecret) -}}
{{- end -}}
{{- if not $secret.name -}}
{{- $_ := set $mounts "ledger" (dict "secret" $own "items" (dict "ledger-url" "url")) -}}
{{- else if not $secret.passwordKey -}}
{{- $_ := set $mounts "ledger" (dict "secret" $secret.name "items" (dict $secret.urlKey "url")) -}}
{{- end -}}
{{- with $v.ledger.caSecret -}}
{{- if .name }}{{- $_ := set $mounts "ledger-ca" (dict "secret" .name "items" (dict .key "ca.crt")) }}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq .component "replayer" -}}
{{- $auth := $v.replayer.auth -}}
{{- if $auth.existingSecret.name -}}
{{- $_ := set $mounts "tokens" (dict "secret" $auth.existingSecret.name "items" (dict $auth.existingSecret.tokensKey "tokens.yaml")) -}}
{{- else if $auth.tokens -}}
{{- $_ := set $mounts "tokens" (dict "secret" $own "items" (dict "tokens.yaml" "tokens.yaml")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end }}

{{/* The variables with secrets and of the pod. Argument: {root, component, credentials}. Gives a YAML list. */}}
{{- define "redrive.env" -}}
{{- $v := .root.Values -}}
{{- $sasl := $v.kafka.sasl -}}
{{- $programOf := ternary "forwarder" "replayer" (has .component (list "forwarder" "topics")) }}
{{- if $v.existingConfigMap.name }}
{{- include "redrive.settingsEnv" (dict "root" .root "component" $programOf) }}
{{- end }}
{{- if and (eq .component "forwarder") (eq $v.forwarder.kind "StatefulSet") }}
- name: REDRIVE_FORWARDER_INSTANCEID
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
{{- if and $sasl.enabled (not (has $sasl.mechanism (list "OAUTHBEARER" "AWS_MSK_IAM"))) $sasl.existingSecret.name (not $sasl.username) }}
- name: REDRIVE_KAFKA_SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ default $sasl.existingSecret.name .credentials.saslSecretName }}
      key: {{ $sasl.existingSecret.usernameKey }}
{{- end }}
{{- if and $sasl.enabled (eq $sasl.mechanism "AWS_MSK_IAM") $sasl.awsMskIam.existingSecret.name (ne .component "migrations") }}
{{- $secret := $sasl.awsMskIam.existingSecret }}
{{- $name := default $secret.name .credentials.saslSecretName }}
- name: REDRIVE_KAFKA_SASL_AWSMSKIAM_ACCESSKEY
  valueFrom:
    secretKeyRef:
      name: {{ $name }}
      key: {{ $secret.accessKeyKey }}
- name: REDRIVE_KAFKA_SASL_AWSMSKIAM_SECRETKEY
  valueFrom:
    secretKeyRef:
      name: {{ $name }}
      key: {{ $secret.secretKeyKey }}
{{- with $secret.sessionTokenKey }}
- name: REDRIVE_KAFKA_SASL_AWSMSKIAM_SESSIONTOKEN
  valueFrom:
    secretKeyRef:
      name: {{ $name }}
      key: {{ . }}
{{- end }}
{{- end }}
{{- if and (has .component (list "replayer" "migrations")) (include "redrive.postgres" .root) }}
{{- if $v.ledger.existingSecret.passwordKey }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $v.ledger.existingSecret.name }}
      key: {{ $v.ledger.existingSecret.passwordKey }}
{{- end }}
{{- if $v.ledger.caSecret.name }}
- name: PGSSLROOTCERT
  value: /etc/redrive/ledger-ca/ca.crt
{{- end }}
{{- end }}
{{- if and $v.tracing.enabled (has .component (list "forwarder" "replayer")) }}
- name: OTEL_SERVICE_NAME
  value: {{ ternary "redrive-forwarder" "redrive-dlt-replayer" (eq .component "forwarder") }}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ printf "k8s.namespace.name=%s,k8s.pod.name=$(POD_NAME)" (include "redrive.namespace" .root) }}
{{- with $v.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ . | quote }}
{{- end }}
- name: OTEL_EXPORTER_OTLP_PROTOCOL
  value: {{ $v.tracing.protocol }}
- name: OTEL_TRACES_SAMPLER
  value: {{ $v.tracing.sampler }}
{{- if ne (toString $v.tracing.samplerArg) "" }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ toString $v.tracing.samplerArg | quote }}
{{- end }}
{{- with $v.tracing.headersSecret }}
{{- if .name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
