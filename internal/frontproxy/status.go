// SPDX-License-Identifier: Apache-2.0

package frontproxy

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
)

// The ConfigMap in which kube-apiserver publishes its trust.
const (
	Namespace     = metav1.NamespaceSystem
	ConfigMapName = "extension-apiserver-authentication"
)

// The keys of the ConfigMap.
const (
	ClientCAKey            = "client-ca-file"
	CAKey                  = "requestheader-client-ca-file"
	AllowedNamesKey        = "requestheader-allowed-names"
	UsernameHeadersKey     = "requestheader-username-headers"
	UIDHeadersKey          = "requestheader-uid-headers"
	GroupHeadersKey        = "requestheader-group-headers"
	ExtraHeaderPrefixesKey = "requestheader-extra-headers-prefix"
)

// Weaknesses of the trust that an administrator may tolerate.
const (
	// AnyName means that every certificate of the front-proxy CA is accepted as the front proxy's.
	AnyName = "AnyName"
	// SharedCA means that the certificates of the front proxy and of users come from related CAs.
	SharedCA = "SharedCA"
)

// Weaknesses lists the weaknesses that can be tolerated.
var Weaknesses = []string{AnyName, SharedCA}

// Status is the evaluation of one state of the ConfigMap, with its content as far as it could be
// parsed.
type Status struct {
	CAs, ClientCAs                                                 []*x509.Certificate
	AllowedNames                                                   []string
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes []string

	// Problems are the reasons to reject all front-proxy identities.
	Problems []Problem
	// ClientCAProblem is the reason to reject all client certificates of users; nil if there is
	// none.
	ClientCAProblem *Problem
}

// Problem is a problem of the ConfigMap.
type Problem struct {
	// Weakness is AnyName or SharedCA; empty for a problem that cannot be tolerated.
	Weakness string
	// Text describes the problem. The ConfigMap is its subject: "has no client-ca-file".
	Text string
	// Hint describes how an administrator can solve the problem. It may be empty.
	Hint string
}

func (p Problem) String() string {
	text := fmt.Sprintf("ConfigMap %s/%s %s", Namespace, ConfigMapName, p.Text)
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

// Evaluate evaluates the ConfigMap; nil means that it does not exist.
//
// k8s.io/apiserver keeps all its old values when one key does not parse
// (k8s.io/apiserver/pkg/authentication/request/headerrequest). A typo in one key would keep a name
// trusted that the same update revokes. Therefore, any key that does not parse is a problem of the
// whole ConfigMap.
func Evaluate(cm *corev1.ConfigMap) Status {
	if cm == nil {
		gone := Problem{Text: "does not exist", Hint: "kube-apiserver creates it when it starts"}
		return Status{Problems: []Problem{gone}, ClientCAProblem: &gone}
	}
	var s Status
	s.parseCAs(cm.Data)
	if s.parseList(cm.Data, AllowedNamesKey, &s.AllowedNames) && len(s.AllowedNames) == 0 {
		s.Problems = append(s.Problems, Problem{
			Weakness: AnyName,
			Text: "has an empty " + AllowedNamesKey +
				", so every certificate of the front proxy's CA can name any user",
			Hint: "set kube-apiserver's --" + AllowedNamesKey,
		})
	}
	if s.parseList(cm.Data, UsernameHeadersKey, &s.UsernameHeaders) && len(s.UsernameHeaders) == 0 {
		s.Problems = append(s.Problems, Problem{
			Text: "names no header in " + UsernameHeadersKey, Hint: "set kube-apiserver's --" + UsernameHeadersKey,
		})
	}
	s.parseList(cm.Data, UIDHeadersKey, &s.UIDHeaders)
	s.parseList(cm.Data, GroupHeadersKey, &s.GroupHeaders)
	s.parseList(cm.Data, ExtraHeaderPrefixesKey, &s.ExtraHeaderPrefixes)
	for _, relation := range relations(s.CAs, s.ClientCAs) {
		s.Problems = append(s.Problems, Problem{
			Weakness: SharedCA,
			Text: "has a CA that the front proxy and users share, so a user's certificate with an allowed name " +
				"can name any user: " + relation,
			Hint: "give kube-apiserver's --" + CAKey + " a CA of its own",
		})
	}
	return s
}

// parseCAs parses the bundles as k8s.io/apiserver does. kube-apiserver may have no client CA, and
// then there are no client certificates of users. If it has one that cannot be parsed, it is
// unknown whether the front-proxy CA is a different one.
func (s *Status) parseCAs(data map[string]string) {
	var err error
	switch s.CAs, err = certutil.ParseCertsPEM([]byte(data[CAKey])); {
	case strings.TrimSpace(data[CAKey]) == "":
		s.Problems = append(s.Problems, Problem{
			Text: "has no " + CAKey + ": the aggregation layer of this cluster is not configured",
			Hint: "set kube-apiserver's --" + CAKey,
		})
	case err != nil:
		s.Problems = append(s.Problems, malformed(CAKey, err))
	}
	switch s.ClientCAs, err = certutil.ParseCertsPEM([]byte(data[ClientCAKey])); {
	case strings.TrimSpace(data[ClientCAKey]) == "":
		s.ClientCAProblem = &Problem{Text: "has no " + ClientCAKey, Hint: "set kube-apiserver's --" + ClientCAKey}
	case err != nil:
		problem := malformed(ClientCAKey, err)
		s.ClientCAProblem, s.Problems = &problem, append(s.Problems, problem)
	}
}

func malformed(key string, err error) Problem {
	return Problem{Text: fmt.Sprintf("has a malformed %s: %v", key, err)}
}

// parseList parses a JSON list of strings. No text is an empty list. It returns false for anything
// else, and for a blank entry: a blank name allows certificates without a name, and a blank prefix
// makes every header an extra of the user.
func (s *Status) parseList(data map[string]string, key string, into *[]string) bool {
	var list []string
	if data[key] != "" {
		if err := json.Unmarshal([]byte(data[key]), &list); err != nil {
			s.Problems = append(s.Problems, malformed(key, fmt.Errorf("expected a list of strings in JSON: %w", err)))
			return false
		}
	}
	if slices.ContainsFunc(list, func(entry string) bool { return strings.TrimSpace(entry) == "" }) {
		s.Problems = append(s.Problems, malformed(key, errors.New(
			"expected a list of strings in JSON, found a blank one")))
		return false
	}
	*into = list
	return true
}

// AllowsName reports whether a certificate of the front-proxy CA with this common name is the
// front proxy's. An empty list allows any name, see AnyName.
func AllowsName(allowed []string, commonName string) bool {
	return len(allowed) == 0 || slices.Contains(allowed, commonName)
}
