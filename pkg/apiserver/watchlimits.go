// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"

	"github.com/spf13/pflag"

	"example.com/extension-apiserver/internal/filters"
)

// WatchLimits limit the number of open watches. API Priority and Fairness counts a watch only
// while it starts, and each costs up to 60 KiB of memory.
type WatchLimits struct {
	// PerUser is the maximum number of watches of one user, at least 1.
	PerUser int
	// Total is the maximum number of watches, at least PerUser. Each user may have up to 20
	// watches in excess of it.
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
