{{- /*
The chart uses the manifests of deploy/, which files/ links to, and sets the values in them, as kustomize's
components do.
*/ -}}

{{- /* The documents of a file, as a list: {"objects": […]}. */ -}}
{{- define "machine-config-server.read" -}}
{{- $objects := list -}}
{{- range $text := splitList "\n---\n" .text -}}
{{-   $object := fromYaml $text -}}
{{-   if not $object.kind }}{{ fail (printf "%s is no manifest: where links are kept as texts, take the packaged chart" $.file) }}{{ end -}}
{{-   $objects = append $objects $object -}}
{{- end -}}
{{- dict "objects" $objects | toJson -}}
{{- end -}}

{{- /* Every object of a file: root, file, name. */ -}}
{{- define "machine-config-server.objects" -}}
{{- $read := dict "file" .file "text" (.root.Files.Get (printf "files/%s" .file)) -}}
{{- range $object := (include "machine-config-server.read" $read | fromJson).objects }}
{{ include "machine-config-server.object" (dict "root" $.root "name" $.name "object" $object) }}
{{- end -}}
{{- end -}}

{{- /*
One object, as it is applied: root, name, object. On OpenShift the machine config operator has some of them too, and
takes them back when it returns: those stay when the release goes.
*/ -}}
{{- define "machine-config-server.object" -}}
{{- $metadata := .object.metadata -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" -}}
{{- $labels := dict "app.kubernetes.io/name" .name "app.kubernetes.io/part-of" "machine-config-server" -}}
{{- $labels = merge $labels (dict "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart) -}}
{{- $_ := set $metadata "labels" (merge ($metadata.labels | default dict) $labels) -}}
{{- $theirs := list "ClusterRole" "ClusterRoleBinding" "DaemonSet" "ServiceAccount" -}}
{{- $theirs = and (eq .root.Values.platform "openshift") (has .object.kind $theirs) (eq $metadata.name "machine-config-server") -}}
{{- if or .keep $theirs -}}
{{-   $_ := set $metadata "annotations" (merge ($metadata.annotations | default dict) (dict "helm.sh/resource-policy" "keep")) -}}
{{- end -}}
{{- if eq .object.kind "ServiceAccount" -}}
{{-   $user := dict "envAll" .root "registryUser" .root.Chart.Name -}}
{{-   $secrets := (include "machine-config-server.snippets.image_pull_secrets" $user | fromYaml).imagePullSecrets | default list -}}
{{-   range .root.Values.image.pullSecrets }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{-   if $secrets }}{{ $_ := set .object "imagePullSecrets" ($secrets | uniq) }}{{ end -}}
{{- end -}}
---
{{ toYaml .object }}
{{- end -}}

{{- define "machine-config-server.image" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{- /*
Arguments, as a list: presets, further. A command takes a flag once, so that a further one takes the place of the preset
of its name. `--host` is a list, and grows.
*/ -}}
{{- define "machine-config-server.args" -}}
{{- $names := list -}}
{{- range .further }}{{ $names = append $names (first (splitList "=" .)) }}{{ end -}}
{{- $args := list -}}
{{- range $preset := .presets -}}
{{-   $name := first (splitList "=" $preset) -}}
{{-   if or (eq $name "--host") (not (has $name $names)) }}{{ $args = append $args $preset }}{{ end -}}
{{- end -}}
{{- concat $args .further | toJson -}}
{{- end -}}

{{- /* A workload with its values: root, name, object, values, args. */ -}}
{{- define "machine-config-server.workload" -}}
{{- $pod := .object.spec.template -}}
{{- $container := index $pod.spec.containers 0 -}}
{{- $image := merge (dict "tag" (.root.Values.image.tag | default .root.Chart.AppVersion)) .root.Values.image -}}
{{- $_ := set $container "image" (include "machine-config-server.image" $image) -}}
{{- $_ := set $container "imagePullPolicy" .root.Values.image.pullPolicy -}}
{{- $args := dict "presets" (concat $container.args .args) "further" .values.extraArgs -}}
{{- $_ := set $container "args" (include "machine-config-server.args" $args | fromJsonArray) -}}
{{- with .values.resources }}{{ $_ := set $container "resources" . }}{{ end -}}
{{- with .values.nodeSelector }}{{ $_ := set $pod.spec "nodeSelector" . }}{{ end -}}
{{- with .values.tolerations }}{{ $_ := set $pod.spec "tolerations" . }}{{ end -}}
{{- with .values.podAnnotations -}}
{{-   $_ := set $pod.metadata "annotations" (merge (deepCopy .) ($pod.metadata.annotations | default dict)) -}}
{{- end -}}
{{- if and .values.replicas (eq .object.kind "Deployment") }}{{ $_ := set .object.spec "replicas" .values.replicas }}{{ end -}}
{{- include "machine-config-server.object" (dict "root" .root "name" .name "object" .object) -}}
{{- end -}}

{{- /* `--access=MODE`, as a list. YAML reads a bare `off` as false. */ -}}
{{- define "machine-config-server.access" -}}
{{- if has . (list "audit" "enforce") }}{{ list (printf "--access=%s" .) | toJson }}{{ else }}[]{{ end -}}
{{- end -}}

{{- /* The right to read one Secret with registry credentials: root, file, name, secret as NAMESPACE/NAME. */ -}}
{{- define "machine-config-server.registry_auth" -}}
{{- $secret := splitList "/" .secret -}}
{{- $read := dict "file" .file "text" (.root.Files.Get (printf "files/%s" .file)) -}}
{{- range $object := (include "machine-config-server.read" $read | fromJson).objects }}
{{- $_ := set $object.metadata "namespace" (first $secret) }}
{{- if eq $object.kind "Role" }}{{ $_ := set (index $object.rules 0) "resourceNames" (list (last $secret)) }}{{ end }}
{{ include "machine-config-server.object" (dict "root" $.root "name" $.name "object" $object) }}
{{- end -}}
{{- end -}}
