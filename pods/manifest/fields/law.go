package fields

// law says how the fields of one type of the API are treated: each is in exactly one of its lists.
// Types that stand inline in another have a law of their own.
type law struct {
	typ string
	// done are fields that have their effect, void those that have none on one node; names are
	// those of manifests, with blanks between them.
	done, void string
	// dropped says that the void ones are removed from the object.
	dropped bool
	// refused are fields that a manifest must not have, and what it may have instead.
	refused []refusal
}

type refusal struct{ field, advice string }

const (
	mountIt  = "mount it on the node and use hostPath"
	noServer = "there is no API server"
	noGroup  = "remove it: Pods are started one by one"
	noDebug  = "a debug container has none"
	nearPods = "only preferred affinity to Pods can be given: all Pods run on one node"
)

// laws hold for Pods, debug containers, ConfigMaps, Secrets, claims and RuntimeClasses, down to the
// last field of k8s.io/api that is done.
var laws = []law{
	{typ: "TypeMeta", done: "kind apiVersion"},
	{typ: "ObjectMeta", done: "name namespace labels annotations", dropped: true,
		void: "generateName selfLink uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds" +
			" ownerReferences finalizers managedFields"},
	{typ: "Pod", done: "metadata spec", void: "status", dropped: true},
	{typ: "PodSpec", done: "volumes initContainers containers restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy" +
		" nodeSelector automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace securityContext" +
		" imagePullSecrets hostname subdomain affinity schedulerName tolerations hostAliases priorityClassName priority dnsConfig" +
		" runtimeClassName preemptionPolicy overhead setHostnameAsFQDN os hostUsers schedulingGates resources hostnameOverride",
		void: "serviceAccountName serviceAccount enableServiceLinks topologySpreadConstraints",
		refused: []refusal{
			{"ephemeralContainers", "they are added to a Pod that runs, by sunaba debug"},
			{"readinessGates", "nothing here sets conditions of a Pod from outside; use a readinessProbe"},
			{"resourceClaims", "use CDI devices, by an annotation cdi.k8s.io/… of the Pod"},
			{"schedulingGroup", noGroup},
			{"evictionResponders", "use a preStop hook for what is to be done before an eviction"},
		}},
	{typ: "Affinity", done: "nodeAffinity podAffinity podAntiAffinity"},
	{typ: "NodeAffinity", done: "requiredDuringSchedulingIgnoredDuringExecution", void: "preferredDuringSchedulingIgnoredDuringExecution"},
	{typ: "PodAffinity", void: "preferredDuringSchedulingIgnoredDuringExecution",
		refused: []refusal{{"requiredDuringSchedulingIgnoredDuringExecution", nearPods}}},
	{typ: "PodAntiAffinity", void: "preferredDuringSchedulingIgnoredDuringExecution",
		refused: []refusal{{"requiredDuringSchedulingIgnoredDuringExecution", nearPods}}},
	{typ: "NodeSelector", done: "nodeSelectorTerms"},
	{typ: "NodeSelectorTerm", done: "matchExpressions matchFields"},
	{typ: "NodeSelectorRequirement", done: "key operator values"},
	{typ: "Toleration", done: "key operator value effect tolerationSeconds"},
	{typ: "HostAlias", done: "ip hostnames"},
	{typ: "LocalObjectReference", done: "name"},
	{typ: "PodDNSConfig", done: "nameservers searches options"},
	{typ: "PodDNSConfigOption", done: "name value"},
	{typ: "PodOS", done: "name"},
	{typ: "PodSchedulingGate", done: "name"},
	{typ: "ResourceRequirements", done: "limits requests",
		refused: []refusal{{"claims", "use CDI devices, by an annotation cdi.k8s.io/… of the Pod"}}},
	{typ: "PodSecurityContext", done: "seLinuxOptions runAsUser runAsGroup runAsNonRoot supplementalGroups supplementalGroupsPolicy fsGroup" +
		" sysctls fsGroupChangePolicy seccompProfile appArmorProfile seLinuxChangePolicy",
		refused: []refusal{{"windowsOptions", "the node runs Linux"}}},
	{typ: "SecurityContext", done: "capabilities privileged seLinuxOptions runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem" +
		" allowPrivilegeEscalation procMount seccompProfile appArmorProfile",
		refused: []refusal{{"windowsOptions", "the node runs Linux"}}},
	{typ: "Capabilities", done: "add drop"},
	{typ: "SELinuxOptions", done: "user role type level"},
	{typ: "SeccompProfile", done: "type localhostProfile"},
	{typ: "AppArmorProfile", done: "type localhostProfile"},
	{typ: "Sysctl", done: "name value"},

	{typ: "Container", done: "name image command args workingDir ports envFrom env resources resizePolicy restartPolicy restartPolicyRules" +
		" volumeMounts livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy" +
		" securityContext stdin stdinOnce tty",
		refused: []refusal{{"volumeDevices", "use a hostPath volume of type BlockDevice"}}},
	{typ: "EphemeralContainer", done: "targetContainerName"},
	{typ: "EphemeralContainerCommon", done: "name image command args workingDir envFrom env volumeMounts terminationMessagePath" +
		" terminationMessagePolicy imagePullPolicy securityContext stdin stdinOnce tty",
		refused: []refusal{
			{"ports", noDebug}, {"resources", noDebug}, {"resizePolicy", noDebug}, {"restartPolicy", noDebug},
			{"restartPolicyRules", noDebug}, {"volumeDevices", noDebug}, {"livenessProbe", noDebug}, {"readinessProbe", noDebug},
			{"startupProbe", noDebug}, {"lifecycle", noDebug},
		}},
	{typ: "ContainerPort", done: "name hostPort containerPort protocol hostIP"},
	{typ: "EnvFromSource", done: "prefix configMapRef secretRef"},
	{typ: "ConfigMapEnvSource", done: "optional"},
	{typ: "SecretEnvSource", done: "optional"},
	{typ: "EnvVar", done: "name value valueFrom"},
	{typ: "EnvVarSource", done: "fieldRef resourceFieldRef configMapKeyRef secretKeyRef",
		refused: []refusal{{"fileKeyRef", "have the container read the file itself"}}},
	{typ: "ObjectFieldSelector", done: "apiVersion fieldPath"},
	{typ: "ResourceFieldSelector", done: "containerName resource divisor"},
	{typ: "ConfigMapKeySelector", done: "key optional"},
	{typ: "SecretKeySelector", done: "key optional"},
	{typ: "ContainerResizePolicy", done: "resourceName restartPolicy"},
	{typ: "ContainerRestartRule", done: "action exitCodes"},
	{typ: "ContainerRestartRuleOnExitCodes", done: "operator values"},
	{typ: "VolumeMount", done: "name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr bindMountOptions"},
	{typ: "Probe", done: "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds"},
	{typ: "ProbeHandler", done: "exec httpGet tcpSocket grpc"},
	{typ: "ExecAction", done: "command"},
	{typ: "HTTPGetAction", done: "path port host scheme httpHeaders",
		refused: []refusal{{"protocol", "probe by HTTP/1.1, or by tcpSocket"}}},
	{typ: "HTTPHeader", done: "name value"},
	{typ: "TCPSocketAction", done: "port host"},
	{typ: "GRPCAction", done: "port service",
		refused: []refusal{{"mode", "leave it out, which is Plaintext"}}},
	{typ: "Lifecycle", done: "postStart preStop stopSignal"},
	{typ: "LifecycleHandler", done: "exec httpGet sleep",
		refused: []refusal{{"tcpSocket", "a hook of this kind always fails in Kubernetes; use exec or httpGet"}}},
	{typ: "SleepAction", done: "seconds"},

	{typ: "Volume", done: "name"},
	{typ: "VolumeSource", done: "hostPath emptyDir secret persistentVolumeClaim downwardAPI configMap projected image",
		refused: []refusal{
			{"nfs", mountIt}, {"iscsi", mountIt}, {"csi", mountIt}, {"cephfs", mountIt}, {"rbd", mountIt}, {"glusterfs", mountIt},
			{"fc", mountIt}, {"flocker", mountIt}, {"flexVolume", mountIt}, {"gcePersistentDisk", mountIt},
			{"awsElasticBlockStore", mountIt}, {"cinder", mountIt}, {"azureFile", mountIt}, {"azureDisk", mountIt},
			{"vsphereVolume", mountIt}, {"quobyte", mountIt}, {"photonPersistentDisk", mountIt}, {"portworxVolume", mountIt},
			{"scaleIO", mountIt}, {"storageos", mountIt},
			{"gitRepo", "clone it into an emptyDir in an init container"},
			{"ephemeral", "use emptyDir, or a persistentVolumeClaim"},
		}},
	{typ: "HostPathVolumeSource", done: "path type"},
	{typ: "EmptyDirVolumeSource", done: "medium sizeLimit mode"},
	{typ: "SecretVolumeSource", done: "secretName items defaultMode optional defaultUser"},
	{typ: "ConfigMapVolumeSource", done: "items defaultMode optional defaultUser"},
	{typ: "KeyToPath", done: "key path mode user"},
	{typ: "PersistentVolumeClaimVolumeSource", done: "claimName readOnly"},
	{typ: "DownwardAPIVolumeSource", done: "items defaultMode defaultUser"},
	{typ: "DownwardAPIVolumeFile", done: "path fieldRef resourceFieldRef mode user"},
	{typ: "ProjectedVolumeSource", done: "sources defaultMode defaultUser"},
	{typ: "VolumeProjection", done: "secret downwardAPI configMap clusterTrustBundle",
		refused: []refusal{
			{"serviceAccountToken", noServer + ", so there is no token"},
			{"podCertificate", noServer + ", so there is no certificate; use a Secret"},
		}},
	{typ: "SecretProjection", done: "items optional"},
	{typ: "ConfigMapProjection", done: "items optional"},
	{typ: "DownwardAPIProjection", done: "items"},
	{typ: "ClusterTrustBundleProjection", done: "optional", void: "name signerName labelSelector path user"},
	{typ: "ImageVolumeSource", done: "reference pullPolicy"},

	{typ: "ConfigMap", done: "metadata immutable data binaryData"},
	{typ: "Secret", done: "metadata immutable data stringData type"},
	{typ: "PersistentVolumeClaim", done: "metadata spec", void: "status", dropped: true},
	{typ: "PersistentVolumeClaimSpec", done: "accessModes resources storageClassName volumeMode",
		refused: []refusal{
			{"selector", "a claim is a folder of the node, which nothing selects"},
			{"volumeName", "a claim is a folder of the node; use a hostPath volume for one that is there"},
			{"dataSource", "fill the claim by an init container"},
			{"dataSourceRef", "fill the claim by an init container"},
			{"volumeAttributesClassName", "a claim is a folder of the node, which has no classes"},
		}},
	{typ: "VolumeResourceRequirements", done: "requests", void: "limits"},
	{typ: "RuntimeClass", done: "metadata handler overhead scheduling"},
	{typ: "Overhead", done: "podFixed"},
	{typ: "Scheduling", done: "nodeSelector tolerations"},
}
