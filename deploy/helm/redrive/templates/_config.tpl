{{/*
What the values say, in the keys of topics.yaml. What is not set is left out, so that the default of the program holds.
Argument: the root. Gives YAML.
*/}}
{{- define "redrive.settings" -}}
{{- $v := .Values -}}
{{- $kafka := dict -}}
{{- with $v.kafka.brokers }}{{- $_ := set $kafka "brokers" . }}{{- end -}}
{{- with $v.kafka.clientId }}{{- $_ := set $kafka "clientId" . }}{{- end -}}
{{- with $v.kafka.rackId }}{{- $_ := set $kafka "rackId" . }}{{- end -}}
{{- with $v.kafka.tls -}}
{{- if .enabled -}}
{{- $tls := dict "enabled" true -}}
{{- if .caSecret.name }}{{- $_ := set $tls "caFilepath" "/etc/redrive/kafka-ca/ca.crt" }}{{- end -}}
{{- if .clientSecret.name -}}
{{- $_ := set $tls "certFilepath" "/etc/redrive/kafka-client/tls.crt" -}}
{{- $_ := set $tls "keyFilepath" "/etc/redrive/kafka-client/tls.key" -}}
{{- end -}}
{{- with .serverName }}{{- $_ := set $tls "serverName" . }}{{- end -}}
{{- if .insecureSkipTlsVerify }}{{- $_ := set $tls "insecureSkipTlsVerify" true }}{{- end -}}
{{- $_ := set $kafka "tls" $tls -}}
{{- end -}}
{{- end -}}
{{- with $v.kafka.sasl -}}
{{- if .enabled -}}
{{- $sasl := dict "enabled" true "mechanism" .mechanism -}}
{{- if eq .mechanism "OAUTHBEARER" -}}
{{- $oauth := dict -}}
{{- if .oauth.tokenEndpoint -}}
{{- $_ := set $oauth "tokenEndpoint" .oauth.tokenEndpoint -}}
{{- $_ := set $oauth "clientId" .oauth.clientId -}}
{{- $_ := set $oauth "clientSecretFilepath" "/etc/redrive/kafka-oauth/client-secret" -}}
{{- with .oauth.scope }}{{- $_ := set $oauth "scope" . }}{{- end -}}
{{- else -}}
{{- $_ := set $oauth "tokenFilepath" "/etc/redrive/kafka-oauth/token" -}}
{{- end -}}
{{- with .oauth.extensions }}{{- $_ := set $oauth "extensions" . }}{{- end -}}
{{- $_ := set $sasl "oauth" $oauth -}}
{{- else if eq .mechanism "AWS_MSK_IAM" -}}
{{- $msk := dict -}}
{{- with .awsMskIam.region }}{{- $_ := set $msk "region" . }}{{- end -}}
{{- with .awsMskIam.userAgent }}{{- $_ := set $msk "userAgent" . }}{{- end -}}
{{- with $msk }}{{- $_ := set $sasl "awsMskIam" . }}{{- end -}}
{{- else -}}
{{- with .username }}{{- $_ := set $sasl "username" . }}{{- end -}}
{{- $_ := set $sasl "passwordFilepath" "/etc/redrive/kafka-sasl/password" -}}
{{- end -}}
{{- $_ := set $kafka "sasl" $sasl -}}
{{- end -}}
{{- end -}}
{{- $settings := dict -}}
{{- with $kafka }}{{- $_ := set $settings "kafka" . }}{{- end -}}
{{- $forwarder := dict "admin" (dict "address" ":9400") -}}
{{- range $key := list "group" "groupProtocol" "sessionTimeout" "shutdownTimeout" -}}
{{- with get $v.forwarder $key }}{{- $_ := set $forwarder $key . }}{{- end -}}
{{- end -}}
{{- $_ := set $settings "forwarder" $forwarder -}}
{{- if $v.replayer.enabled -}}
{{- $replayer := dict "admin" (dict "address" ":9401") -}}
{{- range $key := list "group" "sessionTimeout" "shutdownTimeout" "labelHeader" -}}
{{- with get $v.replayer $key }}{{- $_ := set $replayer $key . }}{{- end -}}
{{- end -}}
{{- with $v.replayer.expiry.within }}{{- $_ := set $replayer "expiry" (dict "within" .) }}{{- end -}}
{{- if include "redrive.authenticated" . -}}
{{- $_ := set $replayer "api" (dict "address" ":9402" "tokensFilepath" "/etc/redrive/tokens/tokens.yaml") -}}
{{- end -}}
{{- $_ := set $settings "replayer" $replayer -}}
{{- $ledger := dict -}}
{{- if include "redrive.postgres" . -}}
{{- if $v.ledger.existingSecret.passwordKey -}}
{{- $_ := set $ledger "url" $v.ledger.url -}}
{{- else -}}
{{- $_ := set $ledger "urlFilepath" "/etc/redrive/ledger/url" -}}
{{- end -}}
{{- $_ := set $ledger "migrate" false -}}
{{- with $v.ledger.maxConnections }}{{- $_ := set $ledger "maxConnections" . }}{{- end -}}
{{- else -}}
{{- $_ := set $ledger "dataDir" "/var/lib/redrive" -}}
{{- end -}}
{{- if $v.ledger.keepPayload }}{{- $_ := set $ledger "keepPayload" true }}{{- end -}}
{{- $_ := set $settings "ledger" $ledger -}}
{{- end -}}
{{- $logging := dict -}}
{{- with $v.logging.level }}{{- $_ := set $logging "level" . }}{{- end -}}
{{- with $v.logging.format }}{{- $_ := set $logging "format" . }}{{- end -}}
{{- with $logging }}{{- $_ := set $settings "logging" . }}{{- end -}}
{{- if $v.tracing.enabled }}{{- $_ := set $settings "tracing" (dict "enabled" true) }}{{- end -}}
{{- toYaml $settings -}}
{{- end }}

{{/* The whole of topics.yaml. Argument: the root. Gives YAML. */}}
{{- define "redrive.config" -}}
{{- $all := include "redrive.settings" . | fromYaml -}}
{{- with .Values.topics }}{{- $_ := set $all "topics" . }}{{- end -}}
{{- toYaml (mergeOverwrite $all (deepCopy .Values.config)) -}}
{{- end }}

{{/*
What a change of restarts the pods. The forwarder takes a change of the topics and of the log level while it runs, and the
dlt-replayer one of the log level. Argument: {root, component}.
*/}}
{{- define "redrive.configChecksum" -}}
{{- $config := include "redrive.config" .root | fromYaml -}}
{{- if and (eq .component "forwarder") (eq .root.Values.forwarder.reload "inplace") -}}
{{- $config = omit $config "topics" "ledger" "replayer" -}}
{{- end -}}
{{- if hasKey $config "logging" }}{{- $_ := set $config "logging" (omit $config.logging "level") }}{{- end -}}
{{- toYaml $config | sha256sum -}}
{{- end }}

{{/*
The settings as variables of the environment, which win over the file: for a file that is not of the chart.
Argument: {root, component}. Gives a YAML list.
*/}}
{{- define "redrive.settingsEnv" -}}
{{- $settings := include "redrive.settings" .root | fromYaml -}}
{{- if eq .component "forwarder" -}}
{{- $settings = omit $settings "replayer" "ledger" -}}
{{- else -}}
{{- $settings = omit $settings "forwarder" -}}
{{- end -}}
{{- include "redrive.flatten" (dict "prefix" "REDRIVE" "section" $settings) -}}
{{- end }}

{{- define "redrive.flatten" -}}
{{- $prefix := .prefix -}}
{{- range $key, $value := .section }}
{{- $name := printf "%s_%s" $prefix (upper $key) }}
{{- if kindIs "map" $value }}
{{- include "redrive.flatten" (dict "prefix" $name "section" $value) }}
{{- else if and (kindIs "slice" $value) (eq $key "extensions") }}
{{- $pairs := list }}
{{- range $value }}{{- $pairs = append $pairs (printf "%s=%s" .key .value) }}{{- end }}
- name: {{ $name }}
  value: {{ join "," $pairs | quote }}
{{- else if kindIs "slice" $value }}
- name: {{ $name }}
  value: {{ join "," $value | quote }}
{{- else }}
- name: {{ $name }}
  value: {{ toString $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* A duration as milliseconds; nothing if it is none. Argument: the text. */}}
{{- define "redrive.millis" -}}
{{- $text := toString . -}}
{{- if regexMatch "^([0-9]+(ms|[ywdhms]))+$" $text -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 "w" 604800000 "y" 31536000000 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|[ywdhms])" $text -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = add $sum (mul (trimSuffix $unit . | int64) (get $units $unit | int64)) -}}
{{- end -}}
{{- $sum -}}
{{- else if eq $text "0" -}}0
{{- end -}}
{{- end }}

{{/* Milliseconds as the program names a tier: a whole number of the largest unit that divides them. */}}
{{- define "redrive.duration" -}}
{{- $ms := . | int64 -}}
{{- if eq (mod $ms 86400000) 0 -}}{{ div $ms 86400000 }}d
{{- else if eq (mod $ms 3600000) 0 -}}{{ div $ms 3600000 }}h
{{- else if eq (mod $ms 60000) 0 -}}{{ div $ms 60000 }}m
{{- else if eq (mod $ms 1000) 0 -}}{{ div $ms 1000 }}s
{{- else -}}{{ $ms }}ms
{{- end -}}
{{- end }}

{{/*
The topics of Redrive that topics.yaml needs, with how long each keeps its records, by the rules of forwarder topics apply.
Argument: the root. Gives YAML: {NAME: {origin, role, retentionMs, messages}}.
*/}}
{{- define "redrive.topics" -}}
{{- $config := include "redrive.config" . | fromYaml -}}
{{- $day := 86400000 -}}
{{- $all := dict -}}
{{- range $entry := default list $config.topics -}}
{{- $names := merge (deepCopy (default dict $entry.names)) (dict "inbox" "{origin}.retry" "tier" "{origin}.retry.{tier}" "deadLetters" "{origin}.dlt" "replayTrigger" "{deadLetters}.replay") -}}
{{- $origin := $entry.origin -}}
{{- $group := default "" $entry.group -}}
{{- $wanted := list -}}
{{- if $entry.returnTo -}}
{{- $wanted = append $wanted (dict "name" $entry.returnTo "role" "return" "retentionMs" 0) -}}
{{- end -}}
{{- $wanted = append $wanted (dict "name" $names.inbox "role" "inbox" "retentionMs" (mul 7 $day)) -}}
{{- range $tier := default (list "10s" "1m" "10m") $entry.tiers -}}
{{- if kindIs "string" $tier }}{{- $tier = dict "delay" $tier }}{{- end -}}
{{- $delay := include "redrive.millis" (default "0s" $tier.delay) | int64 -}}
{{- $wait := add $delay (include "redrive.millis" (default "0s" $tier.jitter) | int64) -}}
{{- $name := default (include "redrive.duration" $delay) $tier.name -}}
{{- $wanted = append $wanted (dict "name" (default $names.tier $tier.topic | replace "{tier}" $name) "role" "tier" "retentionMs" (max (mul 7 $day) (add (mul 2 $wait) $day))) -}}
{{- end -}}
{{- $wanted = append $wanted (dict "name" $names.deadLetters "role" "dead-letters" "retentionMs" (mul 30 $day)) -}}
{{- $wanted = append $wanted (dict "name" $names.replayTrigger "role" "replay-trigger" "retentionMs" $day) -}}
{{- range $wanted -}}
{{- $name := .name | replace "{deadLetters}" $names.deadLetters | replace "{origin}" $origin | replace "{group}" $group -}}
{{- if ne $name $origin -}}
{{- $known := get $all $name | default dict -}}
{{- $_ := set $all $name (dict "origin" $origin "role" .role "retentionMs" (max (.retentionMs | int64) (default 0 $known.retentionMs | int64))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $all -}}
{{- end }}
