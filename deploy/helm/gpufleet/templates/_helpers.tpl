{{/* The name of an object: the release, and the part that it belongs to. */}}
{{- define "gpufleet.name" -}}
{{ printf "%s-%s" .release .part | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The settings of a worker: its own, and the defaults for the rest. */}}
{{- define "gpufleet.worker" -}}
{{ mergeOverwrite (deepCopy .root.Values.workerDefaults) .own | toYaml }}
{{- end }}

{{/* Not empty if a pool of the worker takes sessions. */}}
{{- define "gpufleet.takesSessions" -}}
{{- range .pools }}
{{- if regexMatch "[:,]sessions=0*[1-9]" . }}true{{ end }}
{{- end }}
{{- end }}

{{/* What selects the pods of a part. */}}
{{- define "gpufleet.selector" -}}
app.kubernetes.io/name: gpufleet
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "gpufleet.labels" -}}
{{ include "gpufleet.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "gpufleet.image" -}}
{{- $image := .root.Values.image -}}
{{ with $image.registry }}{{ . | trimSuffix "/" }}/{{ end }}{{ .program }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* The settings that all pods share. */}}
{{- define "gpufleet.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The settings that all containers share. */}}
{{- define "gpufleet.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "gpufleet.log" -}}
- name: GPUFLEET_LOG_FORMAT
  value: {{ .Values.logs.format }}
{{- with .Values.logs.filter }}
- name: GPUFLEET_LOG
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* A variable from a secret. */}}
{{- define "gpufleet.secret" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end }}

{{/* The blob store, under the given variable. */}}
{{- define "gpufleet.blobs" -}}
{{- with .root.Values.blobs }}
{{- if .store }}
- name: {{ $.variable }}
  value: {{ .store | quote }}
{{- end }}
{{- with .credentials }}
{{ include "gpufleet.secret" (dict "name" "AWS_ACCESS_KEY_ID" "secret" . "key" "AWS_ACCESS_KEY_ID") }}
{{ include "gpufleet.secret" (dict "name" "AWS_SECRET_ACCESS_KEY" "secret" . "key" "AWS_SECRET_ACCESS_KEY") }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpufleet.blobs.mount" -}}
{{- if .Values.blobs.claim }}
- name: blobs
  mountPath: /blobs
{{- end }}
{{- end }}

{{- define "gpufleet.blobs.volume" -}}
{{- with .Values.blobs.claim }}
- name: blobs
  persistentVolumeClaim:
    claimName: {{ . }}
{{- end }}
{{- end }}

{{/* For programs that say with a file that they are ready. */}}
{{- define "gpufleet.ready" -}}
startupProbe:
  exec:
    command: [test, -e, /run/gpufleet/ready]
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  exec:
    command: [test, -e, /run/gpufleet/ready]
  periodSeconds: 10
{{- end }}
