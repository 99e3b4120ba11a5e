{{/* The name of everything: at most 40 characters, since names of objects are made from it. */}}
{{- define "redrive.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "redrive.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end }}

{{/* What never changes in the life of a workload. Argument: {root, component}. */}}
{{- define "redrive.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{/* Argument: {root, component}; the component is left out for what is of both. */}}
{{- define "redrive.labels" -}}
{{ include "redrive.selectorLabels" . }}
app.kubernetes.io/version: {{ default .root.Chart.AppVersion .root.Values.image.tag | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: redrive
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
The metadata of an object, without the key itself.
Argument: {root, component, name, namespace, labels, annotations}; all but root and name may be left out.
*/}}
{{- define "redrive.metadata" -}}
name: {{ .name }}
namespace: {{ default (include "redrive.namespace" .root) .namespace }}
labels:
  {{- $labels := include "redrive.labels" . | fromYaml }}
  {{- toYaml (mergeOverwrite $labels (default dict .labels)) | nindent 2 }}
{{- $annotations := mergeOverwrite (dict) (deepCopy .root.Values.commonAnnotations) (deepCopy (default dict .annotations)) }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Argument: {root, image}. A digest beats a tag. */}}
{{- define "redrive.image" -}}
{{- $root := .root -}}
{{- $global := default dict $root.Values.global -}}
{{- $registry := default $root.Values.image.registry (get $global "imageRegistry") -}}
{{- $repository := .image.repository -}}
{{- if $registry -}}{{- $repository = printf "%s/%s" (trimSuffix "/" $registry) $repository -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (coalesce .image.tag $root.Values.image.tag $root.Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* Argument: {root, component, account}. */}}
{{- define "redrive.serviceAccountName" -}}
{{- if .account.create -}}
{{- default (printf "%s-%s" (include "redrive.fullname" .root) .component) .account.name -}}
{{- else -}}
{{- default "default" .account.name -}}
{{- end -}}
{{- end }}

{{- define "redrive.configMapName" -}}
{{- default (printf "%s-config" (include "redrive.fullname" .)) .Values.existingConfigMap.name -}}
{{- end }}

{{/* The Secret of the chart itself, for what stands in the values. */}}
{{- define "redrive.secretName" -}}
{{- printf "%s-inline" (include "redrive.fullname" .) -}}
{{- end }}

{{/* Is yes where the API asks who it is, so that it may be reached from elsewhere. */}}
{{- define "redrive.authenticated" -}}
{{- if or .Values.replayer.auth.existingSecret.name .Values.replayer.auth.tokens -}}yes{{- end -}}
{{- end }}

{{/* Is yes where the ledger is in Postgres. */}}
{{- define "redrive.postgres" -}}
{{- if eq .Values.ledger.type "postgres" -}}yes{{- end -}}
{{- end }}
