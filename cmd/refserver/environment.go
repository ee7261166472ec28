package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

const environmentPrefix = "BREAKWATER_"

// overrideFromEnvironment sets each setting for which env holds a variable: the
// key's path in upper case with underscores, BREAKWATER_ADMIN_LISTEN for
// admin.listen. Lists of texts are separated by commas. Variables that name no
// setting are returned: no error, because container platforms set some by
// the name of a service.
func overrideFromEnvironment(c *config, env []string) (strays []string, err error) {
	values := map[string]string{}
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, environmentPrefix) {
			values[name] = value
		}
	}
	err = overrideStruct(reflect.ValueOf(c).Elem(), environmentPrefix, values)
	return slices.Sorted(maps.Keys(values)), err
}

func overrideStruct(v reflect.Value, prefix string, values map[string]string) error {
	for i := range v.NumField() {
		field := v.Field(i)
		name := prefix + environmentName(v.Type().Field(i).Tag.Get("yaml"))
		if field.Kind() == reflect.Struct {
			if err := overrideStruct(field, name+"_", values); err != nil {
				return err
			}
			continue
		}
		value, ok := values[name]
		if !ok {
			continue
		}
		delete(values, name)
		if err := overrideField(field, value); err != nil {
			return fmt.Errorf("%s=%q: %w", name, value, err)
		}
	}
	return nil
}

func overrideField(field reflect.Value, value string) error {
	switch to := field.Addr().Interface().(type) {
	case *string:
		*to = value
		return nil
	case *[]string:
		*to = []string{}
		for item := range strings.SplitSeq(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*to = append(*to, item)
			}
		}
		return nil
	}
	if strings.TrimSpace(value) == "" {
		return nil
	}
	// Everything else is read as YAML reads it, a map or a list of settings in
	// braces; it replaces what the file says.
	field.SetZero()
	d := yaml.NewDecoder(strings.NewReader(value))
	d.KnownFields(true)
	return plainTypes(d.Decode(field.Addr().Interface()))
}

// environmentName turns camelCase into UPPER_SNAKE_CASE.
func environmentName(key string) string {
	var b strings.Builder
	for i, r := range key {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
