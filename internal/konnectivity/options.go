// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// options are the flags of one program.
type options struct {
	*pflag.FlagSet
	problems  []string // arguments that the program refuses
	unknown   []string // variables that kubelet does not replace
	expansion []string // ${NAME}, which is a shell's and not kubelet's
}

// parseOptions reads a container's arguments one by one, so that all that is wrong is found.
func (s *set) parseOptions(p *program, flags []flag) options {
	o := options{FlagSet: newFlagSet(flags)}
	args := p.container.Args
	// kubeadm writes everything into the command.
	if len(p.container.Command) > 1 {
		args = append(append([]string{}, p.container.Command[1:]...), args...)
	}
	for i := 0; i < len(args); i++ {
		arg, missing := s.expand(p, args[i])
		o.unknown = append(o.unknown, missing...)
		if strings.Contains(arg, "${") {
			o.expansion = append(o.expansion, arg)
		}
		one := []string{arg}
		name := strings.TrimLeft(arg, "-")
		if f := o.Lookup(name); f != nil && f.NoOptDefVal == "" && i+1 < len(args) {
			i++
			value, missing := s.expand(p, args[i])
			o.unknown = append(o.unknown, missing...)
			one = append(one, value)
		}
		if err := o.Parse(one); err != nil {
			o.problems = append(o.problems, fmt.Sprintf("%s: %v", strings.Join(one, " "), err))
		}
		for _, rest := range o.Args() {
			o.problems = append(o.problems, fmt.Sprintf("%s: expected a flag", rest))
		}
	}
	return o
}

func (o options) text(name string) string { return o.Lookup(name).Value.String() }

func (o options) isSet(name string) bool { return o.text(name) == "true" }

// duration returns the value of a flag; the table says that it is one.
func (o options) duration(name string) time.Duration {
	d, err := o.GetDuration(name)
	if err != nil {
		panic(err)
	}
	return d
}

// number returns the value of a flag; the table says that it is one.
func (o options) number(name string) int {
	n, err := o.GetInt(name)
	if err != nil {
		panic(err)
	}
	return n
}

// flag is one that a program has.
type flag struct {
	name  string
	value any // its default, whose type is the flag's
}

func newFlagSet(flags []flag) *pflag.FlagSet {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.Usage = func() {}
	// Those of kube-apiserver are too many to list, and none of our business.
	fs.ParseErrorsAllowlist.UnknownFlags = flags[0].name == egressFlag
	for _, f := range flags {
		switch value := f.value.(type) {
		case string:
			fs.String(f.name, value, "")
		case bool:
			fs.Bool(f.name, value, "")
		case int:
			if len(f.name) == 1 {
				fs.IntP(f.name, f.name, value, "") // klog's -v
				continue
			}
			fs.Int(f.name, value, "")
		case float32:
			fs.Float32(f.name, value, "")
		case time.Duration:
			fs.Duration(f.name, value, "")
		case []string:
			fs.StringSlice(f.name, value, "")
		default:
			panic(fmt.Sprintf("flag %s has a default of type %T", f.name, value))
		}
	}
	return fs
}
