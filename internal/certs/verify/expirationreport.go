// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"crypto/x509"
	"time"
)

// ExpirationOptions say which certificates are due.
type ExpirationOptions struct {
	WarnWithin time.Duration // a certificate with no more left than this has the state warn
	FailWithin time.Duration // likewise due, which is worse
	Now        time.Time
}

// State says how near a certificate's end is.
type State string

// The states, each with what it means.
const (
	StateOK      State = "ok"      // more left than both thresholds
	StateWarn    State = "warn"    // no more left than WarnWithin
	StateDue     State = "due"     // no more left than FailWithin
	StateExpired State = "expired" // it has ended
	StateError   State = "error"   // it is missing, cannot be read, or is not valid yet
)

// ExpirationReport says when certificates end.
type ExpirationReport struct {
	APIVersion   string                `json:"apiVersion"`
	Kind         string                `json:"kind"` // ExpirationReport
	GeneratedAt  time.Time             `json:"generatedAt"`
	Certificates []Expiration          `json:"certificates"`
	Authorities  []AuthorityExpiration `json:"authorities"`
	Summary      ExpirationSummary     `json:"summary"`
}

// Expiration is one certificate. Times are UTC. Name, ExpirationDate, ResidualTime, CAName, ExternallyManaged and
// Missing are what kubeadm certs check-expiration calls so, for scripts that read both.
type Expiration struct {
	Name              string     `json:"name"`   // of its directory, or of its file without extension
	Source            string     `json:"source"` // file; or, of a cluster, see Held
	URI               string     `json:"uri"`    // of a file
	Path              string     `json:"path"`   // as it was given; of a cluster, the object
	Subject           string     `json:"subject"`
	SANs              []string   `json:"sans"`
	Serial            string     `json:"serial"` // hexadecimal
	SHA256            string     `json:"sha256"` // of the DER
	NotBefore         *time.Time `json:"notBefore"`
	NotAfter          *time.Time `json:"notAfter"`
	ExpirationDate    *time.Time `json:"expirationDate"` // the same as NotAfter
	RenewAt           *time.Time `json:"renewAt"`
	ResidualSeconds   int64      `json:"residualSeconds"` // negative once expired
	ResidualTime      int64      `json:"residualTime"`    // the same
	CAName            string     `json:"caName,omitempty"`
	CASHA256          string     `json:"caSha256,omitempty"` // empty when no file holds the CA
	KeyAlgorithm      string     `json:"keyAlgorithm"`
	State             State      `json:"state"`
	Missing           bool       `json:"missing"`           // there is a tls.key without its tls.crt
	ExternallyManaged bool       `json:"externallyManaged"` // the key that signs its successor is not among the files
	Findings          []Finding  `json:"findings"`          // of C07 and C08, and why it could not be read
	Fix               string     `json:"fix,omitempty"`     // what to do when it is due, where that depends on the source
}

// AuthorityExpiration is one CA. It is externally managed when its own key is not among the files.
type AuthorityExpiration struct {
	Expiration
	Role      string   `json:"role,omitempty"`      // signing: it signed a certificate here; retiring: it is only trusted, beside one that did
	Issues    int      `json:"issues"`              // how many of the certificates it signed
	TrustedBy []string `json:"trustedBy,omitempty"` // the ca.crt files, or objects of a cluster, that hold it, and where in them

	cert      *x509.Certificate
	trustedIn []string
}

// ExpirationSummary counts certificates and CAs by state.
type ExpirationSummary struct {
	OK      int `json:"ok"`
	Warn    int `json:"warn"`
	Due     int `json:"due"`
	Expired int `json:"expired"`
	Error   int `json:"error"`
}
