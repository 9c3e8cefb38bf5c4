{{- define "podscope.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "podscope.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "podscope.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "podscope.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of a component; call with (dict "root" $ "component" "agent"). */}}
{{- define "podscope.selector" -}}
app.kubernetes.io/name: {{ include "podscope.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "podscope.labels" -}}
{{ include "podscope.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: podscope
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "podscope.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end -}}

{{- define "podscope.serviceAccount" -}}
{{- $block := index .root.Values .component -}}
{{- if $block.serviceAccount.create -}}
{{- default (printf "%s-%s" (include "podscope.fullname" .root) .component) $block.serviceAccount.name -}}
{{- else -}}
{{- default "default" $block.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "podscope.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "podscope.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* State of the service: database, broker, storage. */}}
{{- define "podscope.serviceEnv" -}}
- name: PODSCOPE_COLLECTOR_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "database.existingSecret is required" .Values.database.existingSecret }}
      key: {{ .Values.database.key }}
- name: PODSCOPE_BROKER_URL
  valueFrom:
    secretKeyRef:
      name: {{ required "broker.existingSecret is required" .Values.broker.existingSecret }}
      key: {{ .Values.broker.key }}
- name: PODSCOPE_COLLECTOR_STORAGE_ROOT
  value: {{ .Values.storage.root | quote }}
- name: PODSCOPE_COLLECTOR_LOG_FORMAT
  value: {{ get .Values.settings "log_format" | default "json" }}
- name: NUMBA_CACHE_DIR
  value: /tmp/numba
{{- range $name, $value := omit .Values.settings "log_format" }}
- name: PODSCOPE_COLLECTOR_{{ upper $name }}
  value: {{ include "podscope.settingText" $value }}
{{- end }}
{{- end -}}

{{- define "podscope.extraEnv" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ include "podscope.settingText" $value }}
{{- end }}
{{- end -}}

{{- define "podscope.serviceVolumes" -}}
- name: tmp
  emptyDir: {}
{{- if .Values.storage.persistence.enabled }}
- name: profiles
  persistentVolumeClaim:
    claimName: {{ default (printf "%s-profiles" (include "podscope.fullname" .)) .Values.storage.persistence.existingClaim }}
{{- end }}
{{- end -}}

{{- define "podscope.serviceMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if .Values.storage.persistence.enabled }}
- name: profiles
  mountPath: /var/lib/podscope
{{- end }}
{{- end -}}

{{/* What collector and workers show to agents. */}}
{{- define "podscope.agentAccessEnv" -}}
{{- if .Values.agent.tls.existingSecret }}
- name: PODSCOPE_COLLECTOR_AGENT_CA_FILE
  value: /etc/podscope-agent-tls/ca.crt
- name: PODSCOPE_COLLECTOR_AGENT_CERT_FILE
  value: /etc/podscope-agent-tls/tls.crt
- name: PODSCOPE_COLLECTOR_AGENT_KEY_FILE
  value: /etc/podscope-agent-tls/tls.key
{{- end }}
{{- if .Values.agent.auth.existingSecret }}
- name: PODSCOPE_COLLECTOR_AGENT_TOKEN_FILE
  value: /etc/podscope-agent-token/token
{{- if .Values.agent.auth.plainText }}
- name: PODSCOPE_COLLECTOR_AGENT_TOKEN_IN_PLAIN_TEXT
  value: "true"
{{- else if not .Values.agent.tls.existingSecret }}
{{- fail "agent.auth.existingSecret needs agent.tls.existingSecret, or agent.auth.plainText: true where the pods' network is trusted" }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "podscope.agentAccessMounts" -}}
{{- if .Values.agent.tls.existingSecret }}
- name: agent-tls
  mountPath: /etc/podscope-agent-tls
  readOnly: true
{{- end }}
{{- if .Values.agent.auth.existingSecret }}
- name: agent-token
  mountPath: /etc/podscope-agent-token
  readOnly: true
{{- end }}
{{- end -}}

{{- define "podscope.agentAccessVolumes" -}}
{{- if .Values.agent.tls.existingSecret }}
- name: agent-tls
  secret:
    secretName: {{ required "agent.tls.clientSecret is required with agent.tls.existingSecret" .Values.agent.tls.clientSecret }}
{{- end }}
{{- include "podscope.agentTokenVolume" . }}
{{- end -}}

{{- define "podscope.agentTokenVolume" -}}
{{- with .Values.agent.auth }}
{{- if .existingSecret }}
- name: agent-token
  secret:
    secretName: {{ .existingSecret }}
    items:
      - key: {{ .key }}
        path: token
{{- end }}
{{- end }}
{{- end -}}

{{/* A setting as the environment gives it: large numbers without an exponent. */}}
{{- define "podscope.settingText" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . | toString | quote }}{{ else }}{{ toString . | quote }}{{ end }}
{{- end -}}

{{- define "podscope.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
