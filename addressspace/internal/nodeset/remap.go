package nodeset

import (
	"fmt"

	"github.com/breakwater-ua/breakwater/uabinary"
)

// Remap turns the namespace indexes of the file into those of a server: indexes
// has one for each of doc.URIs. It is called once.
func (doc *Document) Remap(indexes []uint16) {
	doc.indexes = append([]uint16{0}, indexes...)
	at := func(id *uabinary.NodeID) {
		id.Namespace = doc.indexes[id.Namespace] // in range: nodeID checked it
	}
	for _, n := range doc.Nodes {
		at(&n.ID)
		at(&n.DataType)
		if n.Parent != nil {
			at(n.Parent)
		}
		n.BrowseName.Namespace = doc.indexes[n.BrowseName.Namespace]
		for i := range n.References {
			at(&n.References[i].Type)
			at(&n.References[i].Target)
		}
		if n.Definition != nil {
			for i := range n.Definition.Fields {
				at(&n.Definition.Fields[i].DataType)
			}
		}
	}
}

// index maps a namespace index of a value.
func (doc *Document) index(i uint16) (uint16, error) {
	if int(i) >= len(doc.indexes) {
		return 0, fmt.Errorf("namespace index %d is beyond NamespaceUris", i)
	}
	return doc.indexes[i], nil
}
