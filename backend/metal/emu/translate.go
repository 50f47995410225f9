package emu

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// A kernel's name and parameters. Kernels may be templates.
	signature = regexp.MustCompile(`(?s)\bkernel\s+void\s+(\w+)\s*\((.*?)\)\s*\{`)
	// An instance of a template, with the name that it has for the host.
	instance = regexp.MustCompile(`template\s*\[\[host_name\("(\w+)"\)\]\]\s*kernel\s+decltype\((\w+)(<[^;]*>)\)\s+\w+<[^;]*>;`)
	template = regexp.MustCompile(`(?s)template\s*<[^>]*>\s*kernel\s+void\s+(\w+)`)
	// Where a parameter's argument comes from.
	attribute  = regexp.MustCompile(`\[\[\s*(\w+)(?:\((\d+)\))?\s*\]\]`)
	attributes = regexp.MustCompile(`\[\[[^\]]*\]\]`)
	// An array in threadgroup memory.
	array = regexp.MustCompile(`(?m)^(\s+)threadgroup\s+(\w+)\s+(\w+)\[(.+?)\];`)
)

// positions are the attributes of parameters that say which thread it is, and the emulator's names for them.
var positions = map[string]string{
	"threadgroup_position_in_grid":   "group_position",
	"thread_position_in_threadgroup": "thread_position",
	"threads_per_threadgroup":        "threads",
	"threadgroups_per_grid":          "groups",
	"thread_position_in_grid":        "grid_position",
	"thread_index_in_threadgroup":    "thread_index",
	"thread_index_in_simdgroup":      "lane",
	"simdgroup_index_in_threadgroup": "simdgroup",
	"simdgroups_per_threadgroup":     "simdgroups",
}

// slots lists where the arguments of a kernel come from, in C++.
func slots(kernel, parameters string) (list string, buffers, shared uint32, err error) {
	var items []string
	found := attribute.FindAllStringSubmatch(parameters, -1)
	if n := strings.Count(comments.ReplaceAllString(parameters, ""), ",") + 1; n != len(found) {
		return "", 0, 0, fmt.Errorf("kernel %s has %d parameters and %d attributes", kernel, n, len(found))
	}
	for _, m := range found {
		name, index := m[1], m[2]
		switch kind, position := positions[name]; {
		case position:
			items = append(items, "{Slot::"+kind+", 0}")
		case name == "buffer" || name == "threadgroup":
			var bit uint32
			if _, err := fmt.Sscan(index, &bit); err != nil || bit > 30 {
				return "", 0, 0, fmt.Errorf("kernel %s: [[%s(%s)]]", kernel, name, index)
			}
			kind = name
			if name == "threadgroup" {
				kind = "shared"
				shared |= 1 << bit
			} else {
				buffers |= 1 << bit
			}
			items = append(items, "{Slot::"+kind+", "+index+"}")
		default:
			return "", 0, 0, fmt.Errorf("kernel %s: unknown attribute [[%s]]", kernel, name)
		}
	}
	return strings.Join(items, ", "), buffers, shared, nil
}

var comments = regexp.MustCompile(`//[^\n]*`)

// Translate turns a source in Metal's language into C++ for a library of the emulator. Lines keep their numbers.
func Translate(source string) (string, error) {
	templates := make(map[string]bool)
	for _, m := range template.FindAllStringSubmatch(source, -1) {
		templates[m[1]] = true
	}
	parameters := make(map[string]string)
	type kernel struct{ name, function string }
	var kernels []kernel
	for _, m := range signature.FindAllStringSubmatch(source, -1) {
		parameters[m[1]] = m[2]
		if !templates[m[1]] {
			kernels = append(kernels, kernel{m[1], m[1]})
		}
	}
	functions := make(map[string]string) // by the kernel's name for the host
	for _, k := range kernels {
		functions[k.name] = k.function
	}
	for _, m := range instance.FindAllStringSubmatch(source, -1) {
		if !templates[m[2]] {
			return "", fmt.Errorf("kernel %s is an instance of %s, which is no template of a kernel", m[1], m[2])
		}
		if functions[m[1]] != "" {
			return "", fmt.Errorf("there are two kernels %s", m[1])
		}
		functions[m[1]] = m[2]
		kernels = append(kernels, kernel{m[1], m[2] + m[3]})
	}
	text := instance.ReplaceAllString(source, "")
	text = attributes.ReplaceAllString(text, "")
	text = array.ReplaceAllString(text, "${1}${2} *${3} = emu::threadgroup_array<${2}>(${4});")
	var b strings.Builder
	b.WriteString("#line 1 \"kernels.metal\"\n")
	b.WriteString(text)
	b.WriteString("\n#line 1 \"table\"\nnamespace emu {\n")
	var table strings.Builder
	for _, k := range kernels {
		list, buffers, shared, err := slots(k.name, parameters[functions[k.name]])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "static const Slot slots_%s[] = {%s};\n", k.name, list)
		fmt.Fprintf(&b, "static void call_%s(void *const *b, void *const *s) { call(&%s, slots_%s, b, s); }\n", k.name, k.function, k.name)
		fmt.Fprintf(&table, "  {\"%s\", call_%s, %#xu, %#xu},\n", k.name, k.name, buffers, shared)
	}
	fmt.Fprintf(&b, "static const Kernel table[] = {\n%s};\n", table.String())
	b.WriteString("static void bind(const Services *s) { services = *s; }\n")
	b.WriteString("static const Library library = {bind, table, sizeof table / sizeof *table};\n}\n")
	b.WriteString("extern \"C\" __attribute__((visibility(\"default\"))) const emu::Library *metalemu_library() { return &emu::library; }\n")
	return b.String(), nil
}
