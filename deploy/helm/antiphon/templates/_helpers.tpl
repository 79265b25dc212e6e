{{- define "antiphon.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "antiphon.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "antiphon.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "antiphon.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "antiphon.selectorLabels" -}}
app.kubernetes.io/name: {{ include "antiphon.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "antiphon.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "antiphon.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "antiphon.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "antiphon.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* What each pod would lose, or the others would not see, is refused here and not found out later. */ -}}
{{- define "antiphon.check" -}}
{{- $many := or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}
{{- if and $many (not .Values.store.existingSecret) }}
{{- fail "Several replicas need a database: set store.existingSecret, or replicaCount to 1 without autoscaling." }}
{{- end }}
{{- end }}
