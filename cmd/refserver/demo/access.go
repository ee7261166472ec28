package demo

import (
	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
)

// addAccess adds one variable for each way access can be limited.
func addAccess(ns *addressspace.Namespace) {
	ns.Folder("Demo.Access", addressspace.Description("Variables that differ in who may do what"))
	for _, v := range []struct {
		name, description string
		options           []addressspace.Option
	}{
		{"ReadOnly", "Anybody may read", []addressspace.Option{addressspace.AccessLevel(addressspace.AccessRead)}},
		{"WriteOnly", "Anybody may write, nobody may read", []addressspace.Option{addressspace.AccessLevel(addressspace.AccessWriteOnly)}},
		{"ReadWrite", "Anybody may read and write, status and timestamp too", []addressspace.Option{addressspace.Writable()}},
		{"ValueOnly", "Anybody may write the value, nobody its status or timestamp", []addressspace.Option{
			addressspace.AccessLevel(ua.AccessLevelTypeCurrentRead | ua.AccessLevelTypeCurrentWrite),
		}},
		{"None", "Nobody may read or write", []addressspace.Option{addressspace.AccessLevel(addressspace.AccessNone)}},
		{"UserWrite", "Whoever logged in may write", []addressspace.Option{
			addressspace.Writable(), addressspace.UserAccess(func(c *addressspace.Caller) ua.AccessLevelType {
				if c.Anonymous {
					return addressspace.AccessRead
				}
				return addressspace.AccessReadWrite
			}),
		}},
		{"AdminOnly", "Only administrators may read or write", []addressspace.Option{
			addressspace.Writable(), addressspace.UserAccess(func(c *addressspace.Caller) ua.AccessLevelType {
				if c.Admin {
					return addressspace.AccessReadWrite
				}
				return addressspace.AccessNone
			}),
		}},
	} {
		ns.Variable("Demo.Access."+v.name, 42.0, append(v.options, addressspace.Description(v.description))...)
	}
}

// addDataAccess adds items of the DataAccess model (OPC 10000-8).
func addDataAccess(ns *addressspace.Namespace) {
	ns.Folder("Demo.DataAccess", addressspace.Description("Analog and discrete items"))
	// Units by their UNECE common code (OPC 10000-8 §5.6.4.3, EUInformation).
	for _, v := range []struct {
		name             string
		value, low, high float64
		unit             int32
		symbol, unitName string
	}{
		{"Temperature", 21.5, -50, 150, 4408652, "°C", "degree Celsius"},
		{"Pressure", 1.013, 0, 10, 4342098, "bar", "bar"},
		{"Level", 40, 0, 100, 20529, "%", "percent"},
		{"Flow", 12.5, 0, 50, 5067856, "m³/h", "cubic metre per hour"},
		{"Speed", 1450, 0, 3000, 5394509, "r/min", "revolutions per minute"},
	} {
		ns.Variable("Demo.DataAccess."+v.name, v.value, addressspace.Writable(),
			addressspace.EURange(v.low, v.high), addressspace.EngineeringUnits(v.unit, v.symbol, v.unitName))
	}
	text := func(s string) *ua.LocalizedText { return ua.NewLocalizedTextWithLocale(s, "en") }
	ns.Variable("Demo.DataAccess.Valve", false, addressspace.Writable(),
		addressspace.TypeDefinition(uabinary.NumericID(0, id.TwoStateDiscreteType)),
		addressspace.Property("TrueState", text("open")), addressspace.Property("FalseState", text("closed")))
	ns.Variable("Demo.DataAccess.Mode", uint32(1), addressspace.Writable(),
		addressspace.TypeDefinition(uabinary.NumericID(0, id.MultiStateDiscreteType)),
		addressspace.Property("EnumStrings", []*ua.LocalizedText{text("off"), text("automatic"), text("manual")}))
}
