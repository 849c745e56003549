// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/filters"
)

// WatchLimits bound how many watches are open at a time. Priority and fairness counts them at their start only, and
// each costs up to 60 KiB of memory.
type WatchLimits struct {
	// PerUser is the number for one user, at least 1.
	PerUser int
	// Total is the number in all, at least PerUser. Each user may have 20 more than that.
	Total int
}

func (l *WatchLimits) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.PerUser, "max-watches-per-user", l.PerUser,
		"Number of watches that one user may have open at a time. More get the status 429. "+
			"The agents of all nodes can be one user: raise it, --max-watches and the memory limit, at 60 KiB for each "+
			"watch.")
	fs.IntVar(&l.Total, "max-watches", l.Total, fmt.Sprintf(
		"Number of watches that may be open at a time in all. More get the status 429, "+
			"except up to %d of each user.", filters.ReservedWatches))
}

func (l *WatchLimits) validate() []error {
	var errs []error
	if l.PerUser < 1 {
		errs = append(errs, fmt.Errorf("--max-watches-per-user is %d, expected at least 1", l.PerUser))
	}
	if l.Total < l.PerUser {
		errs = append(errs, fmt.Errorf("--max-watches is %d, expected at least --max-watches-per-user, which is %d",
			l.Total, l.PerUser))
	}
	return errs
}
