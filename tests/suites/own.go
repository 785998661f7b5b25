package suites

// What a suite finds in a machine of its own, which it may use up, switch off and cut the power of.
const (
	// ShareVariable is the environment variable with the folder that the machine shares with its
	// host, and that outlives it.
	ShareVariable = "SUNABA_TEST_SHARE"
	// CutFile is a file of this folder: when it is made, the host ends the machine as a loss of
	// power does, and starts it again.
	CutFile = "cut"
	// Disk is a disk that outlives the machine, for suites that switch it off.
	Disk = "/dev/ubda"
)
