// Package shim is the process that owns a pod's containers: it serves containerd's Task API over
// ttrpc to the CRI server and to containerd alike, asks its engines to turn bundles into
// processes, copies their output, and keeps their exits.
package shim
