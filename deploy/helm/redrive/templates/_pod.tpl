{{/*
The template of a pod, without the key itself.
Argument: {root, component, name, image, args, w, account, credentials}: component is as in redrive.secretMounts, name that of the
container, w the block of values of the workload, account and credentials those that it runs as. What is only of a workload that
stays (probes, ports, sidecars) is left out for a job: {job: true}.
*/}}
{{- define "redrive.podTemplate" -}}
{{- $root := .root -}}
{{- $w := .w -}}
{{- $mounts := include "redrive.secretMounts" . | fromYaml -}}
{{- $sqlite := and (eq .component "replayer") (not (include "redrive.postgres" $root)) -}}
{{- $checksums := dict "checksum/config" (include "redrive.configChecksum" .) -}}
{{- $secret := include "redrive.secretData" $root | fromYaml -}}
{{- if $secret }}{{- $_ := set $checksums "checksum/secret" (toYaml $secret | sha256sum) }}{{- end -}}
metadata:
  labels:
    {{- $labels := include "redrive.labels" (dict "root" $root "component" .component) | fromYaml }}
    {{- $labels = omit $labels "app.kubernetes.io/managed-by" "helm.sh/chart" }}
    {{- toYaml (mergeOverwrite $labels (deepCopy $w.podLabels)) | nindent 4 }}
  {{- $annotations := mergeOverwrite (deepCopy $root.Values.commonAnnotations) $checksums (deepCopy $w.podAnnotations) }}
  annotations:
    {{- toYaml $annotations | nindent 4 }}
spec:
  serviceAccountName: {{ include "redrive.serviceAccountName" . }}
  automountServiceAccountToken: {{ .account.automount }}
  enableServiceLinks: false
  {{- if .job }}
  restartPolicy: Never
  {{- else }}
  terminationGracePeriodSeconds: {{ int64 $w.terminationGracePeriodSeconds }}
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $w.podSecurityContext | nindent 4 }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "hostAliases" "dnsConfig" }}
  {{- with get $w $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $key := list "priorityClassName" "runtimeClassName" "dnsPolicy" }}
  {{- with get $w $key }}
  {{ $key }}: {{ . }}
  {{- end }}
  {{- end }}
  {{- if not .job }}
  {{- with $w.topologySpreadConstraints }}
  {{- $selector := dict "matchLabels" (include "redrive.selectorLabels" (dict "root" $root "component" $.component) | fromYaml) }}
  topologySpreadConstraints:
    {{- range . }}
    - {{- toYaml (merge (deepCopy .) (dict "labelSelector" $selector)) | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- $migrate := and (eq .component "replayer") (include "redrive.postgres" $root) (eq $root.Values.ledger.migrations.mode "init") }}
  {{- if or $migrate (and $w.initContainers (not .job)) }}
  initContainers:
    {{- if $migrate }}
    - name: migrate
      {{- $init := dict "args" (list "migrate" "--config=/etc/redrive/config/topics.yaml") "resources" $root.Values.ledger.migrations.resources }}
      {{- include "redrive.container" (merge $init (omit . "args" "resources")) | nindent 6 }}
    {{- end }}
    {{- if not .job }}
    {{- with $w.initContainers }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .name }}
      {{- include "redrive.container" . | nindent 6 }}
      {{- if not .job }}
      ports:
        - name: metrics
          containerPort: {{ ternary 9400 9401 (eq .component "forwarder") }}
          protocol: TCP
        {{- if and (eq .component "replayer") (include "redrive.authenticated" $root) }}
        - name: http
          containerPort: 9402
          protocol: TCP
        {{- end }}
      {{- range $key := list "startupProbe" "readinessProbe" "livenessProbe" }}
      {{- with get $w $key }}
      {{ $key }}:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with $w.lifecycle }}
      lifecycle:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
    {{- if not .job }}
    {{- with $w.extraContainers }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
    {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "redrive.configMapName" $root }}
        items:
          - key: {{ ternary $root.Values.existingConfigMap.key "topics.yaml" (ne $root.Values.existingConfigMap.name "") }}
            path: topics.yaml
    - name: tmp
      emptyDir:
        sizeLimit: 64Mi
    {{- range $name, $mount := $mounts }}
    - name: {{ $name }}
      secret:
        secretName: {{ $mount.secret }}
        defaultMode: 0440
        items:
          {{- range $key, $path := $mount.items }}
          - key: {{ $key }}
            path: {{ $path }}
          {{- end }}
    {{- end }}
    {{- if include "redrive.projectsToken" . }}
    - name: kafka-oauth
      projected:
        defaultMode: 0440
        sources:
          - serviceAccountToken:
              path: token
              audience: {{ $root.Values.kafka.sasl.oauth.projectedToken.audience | quote }}
              expirationSeconds: {{ int64 $root.Values.kafka.sasl.oauth.projectedToken.expirationSeconds }}
    {{- end }}
    {{- if $sqlite }}
    - name: data
      {{- $p := $root.Values.ledger.sqlite.persistence }}
      {{- if $p.enabled }}
      persistentVolumeClaim:
        claimName: {{ default (printf "%s-ledger" (include "redrive.fullname" $root)) $p.existingClaim }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- end }}
    {{- with $w.extraVolumes }}
    {{- tpl (toYaml .) $root | nindent 4 }}
    {{- end }}
{{- end }}

{{/* Is yes where the token of the brokers is one of the pod's own ServiceAccount. */}}
{{- define "redrive.projectsToken" -}}
{{- $sasl := .root.Values.kafka.sasl -}}
{{- if and $sasl.enabled (eq $sasl.mechanism "OAUTHBEARER") $sasl.oauth.projectedToken.enabled (ne .component "migrations") -}}yes{{- end -}}
{{- end }}

{{/* What every container of the programs has, without its name. Argument: that of redrive.podTemplate. */}}
{{- define "redrive.container" -}}
{{- $root := .root -}}
{{- $w := .w -}}
image: {{ include "redrive.image" . }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  {{- toYaml .args | nindent 2 }}
{{- $resources := default $w.resources .resources }}
{{- $env := include "redrive.env" . | fromYamlArray }}
{{- $limit := include "redrive.softMemoryLimit" (dig "limits" "memory" "" $resources) }}
{{- range $w.extraEnv }}{{- if eq .name "GOMEMLIMIT" }}{{- $limit = "" }}{{- end }}{{- end }}
{{- if $limit }}{{- $env = append $env (dict "name" "GOMEMLIMIT" "value" $limit) }}{{- end }}
{{- $env = concat $env (default list $w.extraEnv) }}
{{- with $env }}
env:
  {{- tpl (toYaml .) $root | nindent 2 }}
{{- end }}
{{- with $w.extraEnvFrom }}
envFrom:
  {{- tpl (toYaml .) $root | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml $w.securityContext | nindent 2 }}
{{- with $resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/redrive/config
    readOnly: true
  - name: tmp
    mountPath: /tmp
  {{- $mounts := include "redrive.secretMounts" . | fromYaml }}
  {{- if include "redrive.projectsToken" . }}{{- $_ := set $mounts "kafka-oauth" dict }}{{- end }}
  {{- range $name := keys $mounts | sortAlpha }}
  - name: {{ $name }}
    mountPath: /etc/redrive/{{ $name }}
    readOnly: true
  {{- end }}
  {{- if and (eq .component "replayer") (not (include "redrive.postgres" $root)) }}
  - name: data
    mountPath: /var/lib/redrive
  {{- end }}
  {{- with $w.extraVolumeMounts }}
  {{- tpl (toYaml .) $root | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Ends a job at once whose exit code says that no second try helps. Argument: {name, codes}. */}}
{{- define "redrive.jobFailures" -}}
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: {{ .name }}
        operator: In
        values: {{ toJson .codes }}
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
{{- end }}

{{/*
Nine tenths of a quantity of memory, in bytes: from there on Go collects garbage as hard as it can rather than let the kernel end the
process. Nothing for what is no quantity. Argument: the quantity.
*/}}
{{- define "redrive.softMemoryLimit" -}}
{{- $text := toString . -}}
{{- if regexMatch "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$" $text -}}
{{- $units := dict "" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) 0.9 | floor | int64 -}}
{{- end -}}
{{- end }}
