{{/*
The groups of the files in files/alerts, without the alerts that are disabled, and with the rules of the values.
Argument: the root. Gives a YAML list.
*/}}
{{- define "redrive.ruleGroups" -}}
{{- $p := .Values.metrics.prometheusRule -}}
{{- $groups := list -}}
{{- $seen := list -}}
{{- range $path, $_ := .Files.Glob "files/alerts/*.yaml" -}}
{{- $file := $.Files.Get $path | fromYaml -}}
{{- with $file.Error }}{{- fail (printf "%s: %s" $path .) }}{{- end -}}
{{- range $group := $file.groups -}}
{{- $rules := list -}}
{{- range $rule := $group.rules -}}
{{- if $rule.alert }}{{- $seen = append $seen $rule.alert }}{{- end -}}
{{- if not (has (default "" $rule.alert) $p.disabled) -}}
{{- $filled := dict -}}
{{- range $key, $value := $rule -}}
{{- if kindIs "map" $value -}}
{{- $texts := dict -}}
{{- range $name, $text := $value }}{{- $_ := set $texts $name (include "redrive.ruleText" (dict "root" $ "path" $path "text" $text)) }}{{- end -}}
{{- $_ := set $filled $key $texts -}}
{{- else -}}
{{- $_ := set $filled $key (include "redrive.ruleText" (dict "root" $ "path" $path "text" $value)) -}}
{{- end -}}
{{- end -}}
{{- if $rule.alert }}{{- $_ := set $filled "labels" (mergeOverwrite (default dict $filled.labels) (deepCopy $p.ruleLabels)) }}{{- end -}}
{{- $rules = append $rules $filled -}}
{{- end -}}
{{- end -}}
{{- if $rules }}{{- $groups = append $groups (mergeOverwrite (deepCopy $group) (dict "rules" $rules)) }}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $p.disabled -}}
{{- if not (has . $seen) }}{{- fail (printf "metrics.prometheusRule.disabled: there is no alert %s; there are %s" . (join ", " $seen)) }}{{- end -}}
{{- end -}}
{{- with $p.extraRules -}}
{{- $groups = append $groups (dict "name" "redrive-extra" "rules" .) -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end }}

{{/*
A text of a rule with [[name]] replaced by the threshold of that name, and [[selector]] by the matchers of the values.
Argument: {root, path, text}.
*/}}
{{- define "redrive.ruleText" -}}
{{- $p := .root.Values.metrics.prometheusRule -}}
{{- $text := toString .text -}}
{{- range $name, $value := $p.thresholds -}}
{{- $shown := toString $value -}}
{{- if kindIs "float64" $value }}{{- if eq $value (floor $value) }}{{- $shown = int64 $value | toString }}{{- end }}{{- end -}}
{{- $text = replace (printf "[[%s]]" $name) $shown $text -}}
{{- end -}}
{{- $selector := $p.selector | trim | trimSuffix "," -}}
{{- $text = replace "[[selector]]" (ternary (printf "%s," $selector) "" (ne $selector "")) $text -}}
{{- with regexFind "\\[\\[[A-Za-z0-9]+\\]\\]" $text }}{{- fail (printf "metrics.prometheusRule.thresholds: %s stands in %s and is not set" . $.path) }}{{- end -}}
{{- $text -}}
{{- end }}
