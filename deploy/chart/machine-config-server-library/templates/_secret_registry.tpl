{{- /*
A registry with authentication, by the keys of openstack-helm's specification "Support OCI image registry with
authentication turned on". Each template takes the chart that it is for, and who logs in:

  {{ include "machine-config-server.manifests.secret_registry" (dict "envAll" . "registryUser" .Chart.Name) }}

Values that are absent are those of the specification: no authentication, a secret where there is one. With them
nothing is printed.
*/ -}}

{{- /* `true`, or nothing: set if images are pulled with credentials. */ -}}
{{- define "machine-config-server.oci_image_registry.enabled" -}}
{{- $registry := (.envAll.Values.endpoints | default dict).oci_image_registry | default dict -}}
{{- if ($registry.auth | default dict).enabled -}}true{{- end -}}
{{- end -}}

{{- /* The name of the Secret. */ -}}
{{- define "machine-config-server.oci_image_registry.secret" -}}
{{- $names := (.envAll.Values.secrets | default dict).oci_image_registry | default dict -}}
{{- index $names .registryUser | default (printf "%s-oci-image-registry" .registryUser) -}}
{{- end -}}

{{- /* Of `{internal: …, default: …}` the first that exists, a text or `{host: …}`. */ -}}
{{- define "machine-config-server.oci_image_registry.host_of" -}}
{{- $host := .internal | default .default -}}
{{- if kindIs "map" $host }}{{ $host = $host.host }}{{ end -}}
{{- $host | default "" -}}
{{- end -}}

{{- /*
As images name the registry: `host:port`, or the host alone where the port is null. A name without a dot is that of a
Service; one with a dot, an address and localhost are taken as they are.
*/ -}}
{{- define "machine-config-server.oci_image_registry.address" -}}
{{- $endpoints := .envAll.Values.endpoints | default dict -}}
{{- $registry := $endpoints.oci_image_registry | default dict -}}
{{- $host := include "machine-config-server.oci_image_registry.host_of" ($registry.host_fqdn_override | default dict) -}}
{{- if not $host -}}
{{-   $host = include "machine-config-server.oci_image_registry.host_of" ($registry.hosts | default dict) -}}
{{-   if not $host }}{{ fail "endpoints.oci_image_registry.hosts.default: the registry's host is missing" }}{{ end -}}
{{-   if not (or (eq $host "localhost") (regexMatch "[.:]" $host)) -}}
{{-     $namespace := $registry.namespace | default .envAll.Release.Namespace -}}
{{-     $host = printf "%s.%s.svc.%s" $host $namespace ($endpoints.cluster_domain_suffix | default "cluster.local") -}}
{{-   end -}}
{{- end -}}
{{- $ports := ($registry.port | default dict).registry | default dict -}}
{{- $port := $ports.internal | default $ports.default -}}
{{- if $port }}{{ printf "%s:%d" $host (int $port) }}{{ else }}{{ $host }}{{ end -}}
{{- end -}}

{{- /* A user's credentials in docker's form; faults name the key and never the value. */ -}}
{{- define "machine-config-server.oci_image_registry.login" -}}
{{- $registry := (.envAll.Values.endpoints | default dict).oci_image_registry | default dict -}}
{{- $login := index ($registry.auth | default dict) .registryUser | default dict -}}
{{- $key := printf "endpoints.oci_image_registry.auth.%s" .registryUser -}}
{{- range $field := list "username" "password" -}}
{{-   $value := index $login $field -}}
{{-   if not $value }}{{ fail (printf "%s.%s is missing, and endpoints.oci_image_registry.auth.enabled is true" $key $field) }}{{ end -}}
{{-   if not (kindIs "string" $value) }}{{ fail (printf "%s.%s is not a text: put it into quotes" $key $field) }}{{ end -}}
{{- end -}}
{{- if contains ":" $login.username }}{{ fail (printf "%s.username has a colon, where the password would begin" $key) }}{{ end -}}
{{- printf "%s:%s" $login.username $login.password | b64enc -}}
{{- end -}}

{{- /*
The secret, where both switches are on: endpoints.oci_image_registry.auth.enabled, manifests.secret_registry. It is
made in the release's namespace, or in that of a further argument, `namespace`.
*/ -}}
{{- define "machine-config-server.manifests.secret_registry" -}}
{{- $switch := (.envAll.Values.manifests | default dict).secret_registry -}}
{{- $wanted := or (kindIs "invalid" $switch) $switch -}}
{{- if and $wanted (include "machine-config-server.oci_image_registry.enabled" .) -}}
{{- $address := include "machine-config-server.oci_image_registry.address" . -}}
{{- $login := include "machine-config-server.oci_image_registry.login" . -}}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ include "machine-config-server.oci_image_registry.secret" . }}
  namespace: {{ .namespace | default .envAll.Release.Namespace }}
type: kubernetes.io/dockerconfigjson
data:
  .dockerconfigjson: {{ dict "auths" (dict $address (dict "auth" $login)) | toJson | b64enc }}
{{ end -}}
{{- end -}}

{{- /* A service account's field of the same name, if images are pulled with credentials. */ -}}
{{- define "machine-config-server.snippets.image_pull_secrets" -}}
{{- if include "machine-config-server.oci_image_registry.enabled" . -}}
imagePullSecrets:
- name: {{ include "machine-config-server.oci_image_registry.secret" . }}
{{ end -}}
{{- end -}}
