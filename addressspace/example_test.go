package addressspace_test

import (
	"context"
	"fmt"

	"github.com/gopcua/opcua/ua"

	"github.com/breakwater-ua/breakwater/addressspace"
	"github.com/breakwater-ua/breakwater/uabinary"
	"github.com/breakwater-ua/breakwater/uastatus"
)

func Example() {
	space, err := addressspace.New(addressspace.Options{ApplicationURI: "urn:plant:server"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ns := space.Namespace("urn:plant")

	// A variable that clients may read; the objects on its path are made.
	temperature := ns.Variable("Boiler.Temperature", 21.5,
		addressspace.EURange(0, 150),
		addressspace.EngineeringUnits(4408652, "°C", "degree Celsius"))
	temperature.Set(22.0)

	// One that clients may write, within limits.
	setpoint := ns.Variable("Boiler.Setpoint", 60.0, addressspace.Writable())
	setpoint.OnWrite(func(w *addressspace.WriteCall) error {
		if x, _ := w.Value.Value.Float64(); x > 90 {
			return uastatus.New(ua.StatusBadOutOfRange, "Setpoint", nil)
		}
		return nil
	})

	// A method.
	double := ua.NewNumericNodeID(0, 11)
	start := ns.Method("Boiler.Start",
		[]ua.Argument{{Name: "Speed", DataType: double, ValueRank: -1}},
		[]ua.Argument{{Name: "Reached", DataType: double, ValueRank: -1}},
		func(ctx context.Context, c *addressspace.Call) ([]any, error) {
			return []any{c.Arg(0).(float64) / 2}, nil
		})

	// What clients do.
	alice := &addressspace.Caller{User: "alice"}
	value := space.ReadValue(&addressspace.Read{ID: temperature.Node().ID(), Attribute: uint32(ua.AttributeIDValue), Caller: alice})
	x, _ := value.Value.Float64()
	fmt.Println("Temperature:", x)

	code := space.Write(setpoint.Node().ID(), uint32(ua.AttributeIDValue), nil,
		&uabinary.DataValue{Mask: ua.DataValueValue, Value: uabinary.Double(95)}, alice)
	fmt.Println("Setpoint 95:", uastatus.Name(code))

	out, _, code := space.CallMethod(context.Background(), ns.NodeID("Boiler"), start.ID(), []uabinary.Variant{uabinary.Double(10)}, alice)
	reached, _ := out[0].Float64()
	fmt.Println("Start 10:", uastatus.Name(code), reached)

	// Output:
	// Temperature: 22
	// Setpoint 95: BadOutOfRange
	// Start 10: Good 5
}

func ExampleSpace_Import() {
	space, err := addressspace.New(addressspace.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = space.Import(addressspace.NodeSetFile{Name: "machine.xml", Data: []byte(`<UANodeSet>
  <Models>
    <Model ModelUri="urn:machine">
      <RequiredModel ModelUri="http://opcfoundation.org/UA/DI/" Version="1.04.0"/>
    </Model>
  </Models>
</UANodeSet>`)})
	fmt.Println(err)
	// Output:
	// machine.xml:4: model urn:machine requires model http://opcfoundation.org/UA/DI/ version 1.04.0, which no file given defines
}
