{{- define "torchx-etcd.selector" -}}
app.kubernetes.io/name: torchx-etcd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "torchx-etcd.labels" -}}
{{ include "torchx-etcd.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
