package main

import (
	"testing"
	"testing/fstest"
)

func TestCgroupMemory(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for _, tt := range []struct {
		name  string
		files fstest.MapFS
		want  int64
		found bool
	}{
		{"version 2, own limit", fstest.MapFS{
			"proc/self/cgroup":             file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("1073741824\n"),
			"sys/fs/cgroup/a/memory.max":   file("max\n"),
		}, 1 << 30, true},
		{"version 2, a lower limit above", fstest.MapFS{
			"proc/self/cgroup":             file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"),
			"sys/fs/cgroup/a/memory.max":   file("536870912\n"),
		}, 1 << 29, true},
		{"version 2, in a container", fstest.MapFS{
			"proc/self/cgroup":         file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("268435456\n"),
		}, 1 << 28, true},
		{"version 1", fstest.MapFS{
			"proc/self/cgroup": file("3:cpu,cpuacct:/x\n2:memory:/x\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("1048576\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   file("9223372036854771712\n"),
		}, 1 << 20, true},
		{"no limit", fstest.MapFS{
			"proc/self/cgroup":         file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("max\n"),
		}, 0, false},
		{"no control groups", fstest.MapFS{}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, found := cgroupMemory(tt.files)
			if found != tt.found || found && got != tt.want {
				t.Errorf("%d, %v; want %d, %v", got, found, tt.want, tt.found)
			}
		})
	}
}

func TestPlanRuntime(t *testing.T) {
	t.Setenv("GOMAXPROCS", "6")
	if p := planRuntime(runtimeConfig{}); p.workers != p.procs-1 {
		t.Errorf("with GOMAXPROCS chosen: %v", p)
	}
	if p := planRuntime(runtimeConfig{CryptoWorkers: 3, MemoryLimit: 1 << 30}); p.workers != 3 || p.memory != 1<<30 || p.source != "setting" {
		t.Errorf("with settings: %v", p)
	}
}
