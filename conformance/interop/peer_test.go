package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// peer is one third-party client.
type peer struct {
	name    string
	tools   []string // programs that installing and running needs
	lock    []string // files whose content decides whether an install is current
	install func(ctx context.Context, src, dir string) []*exec.Cmd
	run     func(ctx context.Context, src, dir string) *exec.Cmd
	cannot  map[string]string // item the peer cannot cover → why
}

// peers lists the clients with what each of them cannot do, and why. An item
// that is listed here and is covered all the same fails the test.
var peers = []*peer{
	{
		name:  "gopcua",
		tools: []string{"go"},
		lock:  []string{"main.go", "../../../go.sum"},
		install: func(ctx context.Context, src, dir string) []*exec.Cmd {
			build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "gopcua"), ".")
			build.Dir = src
			return []*exec.Cmd{build}
		},
		run: func(ctx context.Context, _, dir string) *exec.Cmd {
			return exec.CommandContext(ctx, filepath.Join(dir, "gopcua"))
		},
		cannot: map[string]string{
			"None/None/UserName":    "encrypts the password with the channel's policy only",
			"None/None/Certificate": "signs with the channel's policy only",
			"Array.ByteString":      "ua.NewVariant takes [][]byte for a matrix of Byte",
			"Matrix.ByteString":     "ua.NewVariant takes [][][]byte for a cube of Byte",
		},
	},
	{
		name:  "nodeopcua",
		tools: []string{"node", "npm"},
		lock:  []string{"package.json", "package-lock.json"},
		install: func(ctx context.Context, src, dir string) []*exec.Cmd {
			npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
			npm.Dir = dir
			return []*exec.Cmd{
				exec.CommandContext(ctx, "cp", filepath.Join(src, "package.json"), filepath.Join(src, "package-lock.json"), dir),
				npm,
			}
		},
		run: func(ctx context.Context, src, dir string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "node", filepath.Join(src, "client.mjs"))
			cmd.Env = append(os.Environ(), "INTEROP_MODULES="+filepath.Join(dir, "node_modules"))
			return cmd
		},
		cannot: map[string]string{
			"None/None/Certificate": "signs with the channel's policy only",
		},
	},
	{
		name:    "asyncua",
		tools:   []string{"python3"},
		lock:    []string{"requirements.txt"},
		install: installPython,
		run:     runPython,
		cannot: map[string]string{
			"None/None/UserName":    "takes the server's certificate from the channel, which has none",
			"None/None/Certificate": "takes the server's certificate from the channel, which has none",
		},
	},
	{
		name:    "open62541",
		tools:   []string{"python3"},
		lock:    []string{"requirements.txt"},
		install: installPython,
		run:     runPython,
		cannot: map[string]string{
			"None/None/UserName":    "o6 sends user tokens in the clear on a channel without security",
			"None/None/Certificate": "o6 has no policy to sign with on a channel without security",
			"Array.Variant":         "o6 unwraps arrays of Variant and writes arrays of the elements' type",
			"Matrix.Variant":        "o6 unwraps arrays of Variant and writes arrays of the elements' type",
			"Scalar.DataValue":      "o6 takes a DataValue for the value with its timestamps",
			"Array.DataValue":       "o6 takes a DataValue for the value with its timestamps",
			"Matrix.DataValue":      "o6 takes a DataValue for the value with its timestamps",
		},
	},
	milo,
}

// milo is Eclipse Milo, whose last line has opc.tcp only.
var milo = &peer{
	name:  "milo",
	tools: []string{"java", "mvn"},
	lock:  []string{"pom.xml", "src/main/java/interop/Client.java"},
	install: func(ctx context.Context, src, dir string) []*exec.Cmd {
		mvn := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", "-Dinterop.build="+dir,
			"-Dmaven.repo.local="+filepath.Join(filepath.Dir(dir), "m2-"+filepath.Base(src)), "package")
		mvn.Dir = src
		return []*exec.Cmd{mvn}
	},
	run: func(ctx context.Context, _, dir string) *exec.Cmd {
		return exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-jar", filepath.Join(dir, "client.jar"))
	},
	cannot: map[string]string{
		"None/None/Certificate": "signs with the channel's policy only",
	},
}

func installPython(ctx context.Context, src, dir string) []*exec.Cmd {
	return []*exec.Cmd{
		exec.CommandContext(ctx, "python3", "-m", "venv", dir),
		exec.CommandContext(ctx, filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--no-deps",
			"--disable-pip-version-check", "-r", filepath.Join(src, "requirements.txt")),
	}
}

func runPython(ctx context.Context, src, dir string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(dir, "bin", "python"), filepath.Join(src, "client.py"))
}

// source is the peer's folder in the tree.
func (p *peer) source(t *testing.T) string {
	t.Helper()
	src, err := filepath.Abs(p.name)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// require skips the test when one of the tools is missing, or fails it where
// interoperability has to be proved.
func require(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" || os.Getenv("BREAKWATER_INTEROP") == "required" {
				t.Fatalf("needs %s: %v", tool, err)
			}
			t.Skipf("needs %s: %v", tool, err)
		}
	}
}

// ready installs the peer unless the installed one is current, and returns its folder.
func (p *peer) ready(ctx context.Context, t *testing.T) string {
	t.Helper()
	src := p.source(t)
	sum := sha256.New()
	for _, file := range p.lock {
		b, err := os.ReadFile(filepath.Join(src, file))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", file, len(b), b)
	}
	root, err := filepath.Abs("../../.interop")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, p.name+"-"+hex.EncodeToString(sum.Sum(nil))[:16])
	marker := filepath.Join(dir, ".installed")
	if _, err := os.Stat(marker); err == nil {
		return dir
	}
	// A folder without the marker is an install that was cut off.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range p.install(ctx, src, dir) {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}
