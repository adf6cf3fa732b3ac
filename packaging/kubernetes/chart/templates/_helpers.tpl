{{/* Labels by which the pods of a component are found: (dict "component" NAME). */}}
{{- define "switchback.selector" -}}
app.kubernetes.io/name: switchback
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of the objects of a component: (dict "component" NAME "top" $). */}}
{{- define "switchback.labels" -}}
{{ include "switchback.selector" . }}
app.kubernetes.io/version: {{ .top.Chart.AppVersion | quote }}
{{- end }}

{{- define "switchback.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* The Secret by which the controller tells agents and switches what to do. */}}
{{- define "switchback.cluster" -}}
kubernetes://{{ .Release.Namespace }}/cluster
{{- end }}

{{/* The port of [admin]. */}}
{{- define "switchback.admin" -}}
{{ mustRegexFind "[0-9]+$" .Values.admin.listen }}
{{- end }}

{{/*
A DaemonSet on the network of its machines: (dict "component" NAME "command" NAME "args" LIST "affinity" OBJECT "top" $). The
component is the key of its values, the command that of switchback.
*/}}
{{- define "switchback.daemons" -}}
{{- $values := index .top.Values .component -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: switchback-{{ .component }}
  namespace: {{ .top.Release.Namespace }}
  labels: {{- include "switchback.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "switchback.selector" . | nindent 6 }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 1 }
  template:
    metadata:
      labels: {{- include "switchback.labels" . | nindent 8 }}
    spec:
      serviceAccountName: switchback-daemon
      {{- with .top.Values.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      hostNetwork: true
      priorityClassName: system-node-critical
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      # On SIGTERM an agent gives its connections to other machines, for up to 13 seconds; a switch goes on for 3. What is left
      # then stays with the pinned programs, as after SIGKILL, until the next pod takes them over.
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .component }}
          {{- include "switchback.image" .top | nindent 10 }}
          args:
            - {{ .command }}
            - --config={{ include "switchback.cluster" .top }}
            {{- concat .args $values.args | toYaml | nindent 12 }}
          env:
            - { name: NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
            - { name: STATE_DIRECTORY, value: /var/lib/switchback }
          ports:
            - { name: admin, containerPort: {{ include "switchback.admin" .top }} }
            # Between switches and agents.
            - { name: handoff, containerPort: 6081, protocol: UDP }
          # Without a configuration it waits for a minute before it ends.
          startupProbe:
            httpGet: { path: /healthz, port: admin }
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: { path: /healthz, port: admin }
            timeoutSeconds: 3
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: /readyz, port: admin }
            periodSeconds: 5
            timeoutSeconds: 3
          {{- with $values.resources }}
          resources: {{- toYaml . | nindent 12 }}
          {{- end }}
          # Programs of BPF, their file system, addresses and routes of the machine.
          securityContext: { privileged: true, readOnlyRootFilesystem: true }
          volumeMounts:
            # Mounted by the pod, if the machine has not, and then for the next one, too.
            - { name: bpf, mountPath: /sys/fs/bpf, mountPropagation: Bidirectional }
            - { name: run, mountPath: /run/switchback }
            - { name: state, mountPath: /var/lib/switchback }
      volumes:
        # Programs, maps and links, which serve while there is no pod.
        - { name: bpf, hostPath: { path: /sys/fs/bpf, type: Directory } }
        # Control sockets, and whether a switch is withdrawn.
        - { name: run, hostPath: { path: /run/switchback, type: DirectoryOrCreate } }
        # The last configuration, with which the next pod begins when the API server does not answer.
        - { name: state, hostPath: { path: /var/lib/switchback, type: DirectoryOrCreate } }
{{- end }}
