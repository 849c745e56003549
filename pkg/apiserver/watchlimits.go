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
		"Maximum number of open watches of one user. The server responds to more with 429. Increase it if the agents of "+
			"all nodes are one user, together with --max-watches and the memory limit: a watch needs up to 60 KiB.")
	fs.IntVar(&l.Total, "max-watches", l.Total, fmt.Sprintf(
		"Maximum number of open watches of all users. The server responds to more with 429, except for %d watches that "+
			"are reserved for each user.", filters.ReservedWatches))
}

func (l *WatchLimits) validate() []error {
	var errs []error
	if l.PerUser < 1 {
		errs = append(errs, fmt.Errorf("--max-watches-per-user is %d: must be at least 1", l.PerUser))
	}
	if l.Total < l.PerUser {
		errs = append(errs, fmt.Errorf("--max-watches is %d: must be at least --max-watches-per-user, which is %d",
			l.Total, l.PerUser))
	}
	return errs
}
