package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// cgroupShare is the part of the control group's memory that the heap may take;
// the rest is for stacks, descriptors and the kernel's socket buffers.
const cgroupShare = 0.9

// runtimePlan says how the Go runtime is set up. Private-key work runs on threads
// of its own, so there are more Ps than cores: otherwise a storm of handshakes
// would keep the network from being polled (docs/operating.md).
type runtimePlan struct {
	procs   int // GOMAXPROCS
	workers int // threads for private-key work
	memory  int64
	source  string // where memory comes from; "" = no limit
}

func planRuntime(c runtimeConfig) runtimePlan {
	cores := runtime.GOMAXPROCS(0)
	p := runtimePlan{procs: cores, workers: c.CryptoWorkers}
	if _, chosen := os.LookupEnv("GOMAXPROCS"); chosen {
		if p.workers <= 0 {
			p.workers = max(1, cores-1)
		}
	} else {
		if p.workers <= 0 {
			p.workers = cores
		}
		p.procs = cores + p.workers
	}
	switch limit, ok := cgroupMemory(os.DirFS("/")); {
	case c.MemoryLimit > 0:
		p.memory, p.source = int64(c.MemoryLimit), "setting"
	case os.Getenv("GOMEMLIMIT") != "":
		p.memory, p.source = debug.SetMemoryLimit(-1), "GOMEMLIMIT"
	case ok:
		p.memory, p.source = int64(float64(limit)*cgroupShare), "control group"
	}
	return p
}

func (p runtimePlan) apply() {
	runtime.GOMAXPROCS(p.procs)
	if p.source != "" {
		debug.SetMemoryLimit(p.memory)
	}
}

func (p runtimePlan) String() string {
	s := fmt.Sprintf("GOMAXPROCS %d, %d threads for private keys", p.procs, p.workers)
	if p.source == "" {
		return s + ", no memory limit"
	}
	return fmt.Sprintf("%s, memory limit %d MiB (%s)", s, p.memory>>20, p.source)
}

// cgroupMemory returns the lowest memory limit of this process's control group
// and those above it. root is the file system's root.
func cgroupMemory(root fs.FS) (int64, bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	lowest := int64(math.MaxInt64)
	consider := func(file string) {
		b, err := fs.ReadFile(root, file)
		if err != nil {
			return
		}
		// "max" is no number; version 1 writes a huge one for no limit.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && n < 1<<50 {
			lowest = min(lowest, n)
		}
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		folder, file := "", ""
		switch {
		case parts[0] == "0" && parts[1] == "":
			folder, file = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			consider(path.Join(folder, dir, file))
			if dir == "/" {
				break
			}
		}
	}
	return lowest, lowest < math.MaxInt64
}
