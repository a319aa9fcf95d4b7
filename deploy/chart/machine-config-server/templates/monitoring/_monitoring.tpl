{{- /* The objects of a file, with the labels for Prometheus, and the URL of the runbook: root, file, name. */ -}}
{{- define "machine-config-server.monitoring" -}}
{{- $values := .root.Values.monitoring -}}
{{- $text := .root.Files.Get (printf "files/%s" .file) | replace "https://docs.example.com/machine-config-server/" (printf "%s/" (trimSuffix "/" $values.runbookUrl)) -}}
{{- range $object := (include "machine-config-server.read" (dict "file" .file "text" $text) | fromJson).objects }}
{{- if ne $object.kind "Service" }}
{{- $_ := set $object.metadata "labels" (merge (deepCopy $values.labels) ($object.metadata.labels | default dict)) }}
{{- end }}
{{ include "machine-config-server.object" (dict "root" $.root "name" $.name "object" $object) }}
{{- end -}}
{{- end -}}
