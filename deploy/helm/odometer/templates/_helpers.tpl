{{- define "odometer.name" -}}
{{- contains "odometer" .Release.Name | ternary .Release.Name (printf "%s-odometer" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "odometer.tag" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion }}
{{- if not (regexMatch "^[A-Za-z0-9_.-]*[0-9][A-Za-z0-9_.-]*$" $tag) }}
{{- fail "image.tag must be an exact version, which has a digit" }}
{{- end }}
{{- $tag }}
{{- end }}

{{- /* The two templates below take a list of the component and the root context: (list "api" $). */}}
{{- define "odometer.selector" -}}
app.kubernetes.io/name: odometer
app.kubernetes.io/instance: {{ (index . 1).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 0 }}
{{- end }}

{{- define "odometer.labels" -}}
{{ include "odometer.selector" . }}
app.kubernetes.io/version: {{ include "odometer.tag" (index . 1) | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ (index . 1).Release.Service }}
helm.sh/chart: {{ (index . 1).Chart.Name }}-{{ (index . 1).Chart.Version }}
{{- end }}

{{- /* If a user sets replicas to null, Helm removes the key, and an autoscaler can set the number. */}}
{{- define "odometer.replicas" -}}
{{- if and (hasKey . "replicas") (not (kindIs "invalid" .replicas)) }}
replicas: {{ .replicas }}
{{- end }}
{{- end }}

{{- /* Settings of every pod: no privileges, no Kubernetes token, and volumes for Secrets that are read as files. */}}
{{- define "odometer.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false # they would add environment variables
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532 # this group may read the files of Secrets
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if or .Values.database.caSecret .Values.temporal.tls.secret }}
volumes:
  {{- with .Values.database.caSecret }}
  - name: database
    secret: { secretName: {{ . }}, defaultMode: 0440 }
  {{- end }}
  {{- with .Values.temporal.tls.secret }}
  - name: temporal
    secret: { secretName: {{ . }}, defaultMode: 0440 }
  {{- end }}
{{- end }}
{{- end }}

{{- define "odometer.container" -}}
{{- $tag := include "odometer.tag" . -}}
image: "{{ .Values.image.repository }}:{{ $tag }}{{ with .Values.image.digest }}@{{ . }}{{ end }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- if or .Values.database.caSecret .Values.temporal.tls.secret }}
volumeMounts:
  {{- if .Values.database.caSecret }}
  - { name: database, mountPath: /etc/odometer/database, readOnly: true }
  {{- end }}
  {{- if .Values.temporal.tls.secret }}
  - { name: temporal, mountPath: /etc/odometer/temporal, readOnly: true }
  {{- end }}
{{- end }}
{{- end }}

{{- /* The templates below render items of a container's env. */}}
{{- define "odometer.database" -}}
- name: DATABASE_URL
  valueFrom: { secretKeyRef: { name: {{ .secret }}, key: {{ .key }} } }
{{- end }}

{{- define "odometer.secrets" -}}
- name: ODOMETER_SECRET
  valueFrom: { secretKeyRef: { name: {{ .Values.secrets.name }}, key: {{ .Values.secrets.secretKey }} } }
- name: ODOMETER_ENCRYPTION_KEYS
  valueFrom: { secretKeyRef: { name: {{ .Values.secrets.name }}, key: {{ .Values.secrets.encryptionKeysKey }} } }
{{- end }}

{{- define "odometer.temporal" -}}
- name: TEMPORAL_ADDRESS
  value: {{ .Values.temporal.address | quote }}
- name: TEMPORAL_NAMESPACE
  value: {{ .Values.temporal.namespace | quote }}
{{- with .Values.temporal.apiKey }}
{{- if .secret }}
- name: TEMPORAL_API_KEY
  valueFrom: { secretKeyRef: { name: {{ .secret }}, key: {{ .key }} } }
{{- end }}
{{- end }}
{{- with .Values.temporal.tls }}
{{- if .secret }}
- name: TEMPORAL_TLS_CLIENT_CERT_PATH
  value: /etc/odometer/temporal/tls.crt
- name: TEMPORAL_TLS_CLIENT_KEY_PATH
  value: /etc/odometer/temporal/tls.key
{{- if .serverCA }}
- name: TEMPORAL_TLS_SERVER_CA_CERT_PATH
  value: /etc/odometer/temporal/ca.crt
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "odometer.roles" -}}
- name: API_ROLE
  value: {{ .Values.database.apiRole | quote }}
- name: WORKER_ROLE
  value: {{ .Values.database.workerRole | quote }}
{{- end }}
