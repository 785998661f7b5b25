package validation

// The priority classes that are built in (AD16).
const (
	NodeCritical    = "system-node-critical"
	ClusterCritical = "system-cluster-critical"
)

// BuiltinPriorities are the numbers of the built-in classes.
func BuiltinPriorities() map[string]int32 {
	return map[string]int32{NodeCritical: 2000001000, ClusterCritical: 2000000000}
}
