package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/breakwater-ua/breakwater/addressspace"
)

const (
	depth      = 20    // folders below each other in Demo.Deep
	width      = 1_000 // variables side by side in Demo.Wide
	massFolder = 1_000 // mass variables per folder
)

// addFolders adds a deep and a wide place for browsers to get lost in.
func addFolders(ns *addressspace.Namespace) {
	ns.Folder("Demo.Deep", addressspace.Description("Folders in folders"))
	path := "Demo.Deep"
	for i := range depth {
		path += fmt.Sprintf(".Level%02d", i+1)
		ns.Folder(path)
	}
	ns.Variable(path+".Bottom", "You have found it")
	ns.Folder("Demo.Wide", addressspace.Description("Many variables in one folder"))
	for i := range width {
		ns.Variable(fmt.Sprintf("Demo.Wide.Variable%04d", i), int32(i), addressspace.Writable())
	}
}

// addMass adds n variables Demo.Mass.Folder0000.V0000000, …
func addMass(ns *addressspace.Namespace, n int) ([]*addressspace.Variable, error) {
	if n <= 0 {
		return nil, nil
	}
	ns.Folder("Demo.Mass", addressspace.Description("Variables for mass tests"))
	options := []addressspace.Option{addressspace.Writable()}
	specs := make([]addressspace.VariableSpec, 0, massFolder)
	all := make([]*addressspace.Variable, 0, n)
	for i := range n {
		if i%massFolder == 0 {
			ns.Folder(fmt.Sprintf("Demo.Mass.Folder%04d", i/massFolder))
		}
		specs = append(specs, addressspace.VariableSpec{
			Path:    fmt.Sprintf("Demo.Mass.Folder%04d.V%07d", i/massFolder, i),
			Initial: float64(i), Options: options,
		})
		if len(specs) == massFolder || i == n-1 {
			made, err := ns.AddVariables(specs...)
			if err != nil {
				return nil, err
			}
			all, specs = append(all, made...), specs[:0]
		}
	}
	return all, nil
}

// runMass moves all mass variables once per interval, a slice of them at a
// time, so that they do not all change in the same instant.
func runMass(ctx context.Context, all []*addressspace.Variable, interval time.Duration) {
	const slices = 10
	tick := time.NewTicker(max(interval/slices, time.Millisecond))
	defer tick.Stop()
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		part := round % slices
		for i, v := range all[len(all)*part/slices : len(all)*(part+1)/slices] {
			_ = v.Set(float64(round) + float64(i)) // a Double always fits
		}
	}
}
