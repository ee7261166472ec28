package security

import "syscall"

// workerNice is added to the nice value of a worker's thread. Raising it needs no privilege.
const workerNice = 10

// lowerThreadPriority makes the calling, locked thread nicer. A failure is not worth a word:
// the gate then works like on other systems.
func lowerThreadPriority() {
	tid := syscall.Gettid()
	nice := 0
	if raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, tid); err == nil {
		nice = 20 - raw // the raw system call returns 20 − nice
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, min(nice+workerNice, 19))
}
