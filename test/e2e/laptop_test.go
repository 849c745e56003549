// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net"
	"strings"

	kubecluster "example.com/extension-apiserver/internal/cluster"
	"example.com/extension-apiserver/internal/cluster/live"
)

// fromALaptop: where no address of a pod can be reached, certgen verify --port-forward checks all the same.
func fromALaptop(c cluster) {
	for _, forward := range []bool{false, true} {
		r, err := kubecluster.New(c.config)
		if err != nil {
			c.Fatal(err)
		}
		r.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("no way to pods from here")
		}
		r.PortForward = forward
		report, err := live.Check(c.Context(), r, live.Options{Service: service, Secret: name + "-serving"})
		if err != nil {
			c.Fatal(err)
		}
		reached := 0
		for _, checked := range report.Checked {
			if strings.HasPrefix(checked.Object, "endpoint ") && checked.NotAfter != nil {
				reached++
			}
		}
		if reached > 0 != forward || report.Failed(true) == forward {
			c.Errorf("with port-forward %v: %d endpoints reached, findings %+v", forward, reached, report.Findings)
		}
	}
}
