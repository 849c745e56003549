// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"time"

	"example.com/extension-apiserver/internal/certs"
)

// example is a directory with its expected findings.
type example struct {
	name  string
	dir   string // its name determines the purpose of its certificate
	files func(*fixture) files
	opts  Options
	want  []string // "ID severity file" of each finding; empty for a correct directory
	text  string   // in the evidence of one of them
}

// examples contains a directory for each severity of each rule, and similar directories without
// the finding.
var examples = []example{
	{name: "new serving pair", dir: "serving", files: goodServing},
	{name: "new front proxy pair", dir: "front-proxy-client", files: goodClient},
	{name: "new CA", dir: "serving-ca", files: func(f *fixture) files { return pairFiles(&f.servingCA.KeyPair) }},
	{name: "CA with a remote key", dir: "serving-ca", files: func(f *fixture) files {
		return pairFiles(&f.servingCA.KeyPair).without(certs.KeyFile)
	}},

	{name: "signed by a CA that is not in ca.crt", dir: "serving", want: []string{"C01 error tls.crt"},
		files: func(f *fixture) files {
			return pairFiles(f.serving, &f.ca(certs.CAOptions{Usage: x509.ExtKeyUsageServerAuth}).KeyPair)
		}},
	{name: "without its CA", dir: "serving", want: []string{"C01 info tls.crt"}, files: func(f *fixture) files {
		return pairFiles(f.serving)
	}},
	{name: "trusted by itself", dir: "serving", files: func(f *fixture) files {
		pair := f.forge(nil, leaf(nil))
		return pairFiles(pair, pair)
	}},
	{name: "client certificate in the place of a server's", dir: "serving", want: []string{"C02 error tls.crt"},
		files: func(f *fixture) files {
			return forged(f, func(c *x509.Certificate) {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			})
		}},
	{name: "client certificate in the place of a server's, without its CA", dir: "serving",
		want: []string{"C02 error tls.crt", "C01 info tls.crt"}, files: func(f *fixture) files {
			return forged(f, func(c *x509.Certificate) {
				c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			}).without(certs.BundleFile)
		}},
	{name: "client certificate of a CA for servers", dir: "front-proxy-client", want: []string{"C02 error tls.crt"},
		files: func(f *fixture) files {
			pair := f.forge(&f.servingCA.KeyPair, leaf(func(c *x509.Certificate) {
				c.Subject.CommonName, c.ExtKeyUsage = certs.FrontProxyUser,
					[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
			}))
			return pairFiles(pair, &f.servingCA.KeyPair)
		}},
	{name: "server certificate without extended key usages", dir: "serving", files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) { c.ExtKeyUsage = nil })
	}},
	{name: "server and client", dir: "serving", want: []string{"C03 warning tls.crt"}, files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) {
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		})
	}},
	{name: "long name only", dir: "serving", want: []string{"C04 error tls.crt"}, files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) { c.DNSNames = []string{"x." + host} })
	}},
	{name: "common name only", dir: "serving", want: []string{"C04 error tls.crt"}, files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) { c.DNSNames = nil })
	}},
	{name: "of another Service", dir: "serving", want: []string{"C04 error tls.crt"}, files: goodServing,
		opts: Options{Service: certs.Service{Name: "gadgets", Namespace: "demo"}}},
	{name: "of the Service that was named", dir: "serving", files: goodServing,
		opts: Options{Service: certs.Service{Name: "widgets", Namespace: "demo"}}},
	{name: "server without a given Service", dir: "etcd", want: []string{"C04 info tls.crt"}, files: goodServing},
	{name: "unusual server for a given Service", dir: "pair", want: []string{"C04 error tls.crt"},
		files: goodServing,
		opts:  Options{Service: certs.Service{Name: "gadgets", Namespace: "demo"}}},
	{name: "URI as cfssl makes it of a port", dir: "serving", want: []string{"C05 warning tls.crt", "C14 info tls.crt"},
		files: func(f *fixture) files {
			return unlimited(f, func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: host, Opaque: "443"}} })
		}},
	{name: "DNS names that are none", dir: "serving", want: []string{"C05 warning tls.crt", "C05 warning tls.crt",
		"C14 info tls.crt"}, files: func(f *fixture) files {
		return unlimited(f, func(c *x509.Certificate) {
			c.DNSNames, c.EmailAddresses = []string{"*." + host, host, host + ":443"}, []string{"a@" + host}
		})
	}},
	{name: "key of another", dir: "serving", want: []string{"C06 error tls.crt"}, files: func(f *fixture) files {
		return goodServing(f).edit(certs.KeyFile, func([]byte) []byte { return f.client.KeyPEM })
	}},

	{name: "expired", dir: "serving", want: []string{"C07 error tls.crt"}, files: goodServing,
		opts: at(certs.LeafLifetime + time.Second)},
	{name: "not yet valid", dir: "serving", want: []string{"C07 error ca.crt", "C07 error tls.crt"}, files: goodServing,
		opts: at(-2 * time.Hour)},
	{name: "due", dir: "serving", want: []string{"C07 warning tls.crt"}, files: goodServing,
		opts: at(certs.LeafLifetime - dueWithin)},
	{name: "not due", dir: "serving", files: goodServing, opts: at(certs.LeafLifetime - dueWithin - time.Minute)},
	{name: "expired CA beside the one in use", dir: "serving", want: []string{"C07 warning ca.crt"},
		files: func(f *fixture) files {
			old := f.ca(certs.CAOptions{Usage: x509.ExtKeyUsageServerAuth,
				Now: func() time.Time { return epoch.Add(-certs.CALifetime - time.Second) }})
			return pairFiles(f.serving, &old.KeyPair, &f.servingCA.KeyPair)
		}},
	{name: "expired CA", dir: "serving", want: []string{"C07 error ca.crt", "C08 warning tls.crt"},
		files: func(f *fixture) files {
			ca := authority("old")
			ca.NotAfter = epoch.Add(-time.Second)
			old := f.forge(nil, ca)
			return pairFiles(f.forge(old, leaf(nil)), old)
		}},
	{name: "outlives its CA", dir: "serving", want: []string{"C08 warning tls.crt"}, files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) { c.NotAfter = f.openCA.Certificate.NotAfter.Add(time.Second) })
	}},
	{name: "ends with its CA", dir: "serving", files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) { c.NotAfter = f.openCA.Certificate.NotAfter })
	}},
	{name: "RSA 1024", dir: "serving", want: []string{"C09 error tls.crt"}, files: func(f *fixture) files {
		return pairFiles(f.forgeWithKey(f.openCA, leaf(nil), f.rsaKey(1024)), f.openCA)
	}},
	{name: "RSA 2048", dir: "serving", files: func(f *fixture) files {
		return pairFiles(f.forgeWithKey(f.openCA, leaf(nil), f.rsaKey(2048)), f.openCA)
	}},
	{name: "Ed25519", dir: "serving", want: []string{"C09 warning tls.crt"}, files: func(f *fixture) files {
		return pairFiles(f.forgeWithKey(f.openCA, leaf(nil), f.ed25519Key()), f.openCA)
	}},
	{name: "signed with SHA-1", dir: "serving", want: []string{"C01 error tls.crt", "C10 error tls.crt"},
		files: func(f *fixture) files {
			return forged(f, func(c *x509.Certificate) { c.SignatureAlgorithm = x509.ECDSAWithSHA1 })
		}},
	{name: "root signed with SHA-1", dir: "serving", want: []string{"C10 warning ca.crt"},
		files: func(f *fixture) files {
			ca := authority("old")
			ca.SignatureAlgorithm = x509.ECDSAWithSHA1
			old := f.forge(nil, ca)
			return pairFiles(f.forge(old, leaf(nil)), old)
		}},
	{name: "leaf that is a CA", dir: "serving", want: []string{"C11 error tls.crt"}, files: func(f *fixture) files {
		return forged(f, func(c *x509.Certificate) { c.IsCA, c.MaxPathLen = true, -1 })
	}},
	{name: "CA that is none", dir: "serving-ca", want: []string{"C12 error tls.crt"},
		files: func(f *fixture) files { return pairFiles(f.serving) }},
	{name: "leaf instead of its CA in ca.crt", dir: "front-proxy-client",
		want: []string{"C01 error tls.crt", "C12 error ca.crt"}, files: func(f *fixture) files {
			return pairFiles(f.client, f.serving)
		}},
	{name: "CA that may not sign", dir: "serving", want: []string{"C01 error tls.crt", "C12 error ca.crt"},
		files: func(f *fixture) files {
			template := authority("mute")
			template.KeyUsage = x509.KeyUsageCRLSign
			ca := f.forge(nil, template)
			pair := f.forge(ca, leaf(nil))
			return pairFiles(pair, ca)
		}},
	{name: "too long a path", dir: "serving", want: []string{"C13 error tls.crt"},
		files: func(f *fixture) files { return throughIntermediate(f, 0) }},
	{name: "a path as long as allowed", dir: "serving", files: func(f *fixture) files {
		return throughIntermediate(f, 1)
	}},
	{name: "name that the CA may not sign", dir: "serving", want: []string{"C14 error tls.crt"},
		files: func(f *fixture) files {
			return forged(f, func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "widgets.example.com") })
		}},
	{name: "CA that may sign any name", dir: "serving", want: []string{"C14 info tls.crt"},
		files: func(f *fixture) files { return unlimited(f, nil) }},

	{name: "key for all", dir: "serving", want: []string{"F01 error tls.key"},
		files: func(f *fixture) files { return goodServing(f).keyMode(0o644) }},
	{name: "key that its group can replace", dir: "serving", want: []string{"F01 error tls.key"},
		files: func(f *fixture) files { return goodServing(f).keyMode(0o620) }},
	{name: "key for its group", dir: "serving", want: []string{"F01 warning tls.key"},
		files: func(f *fixture) files { return goodServing(f).keyMode(0o440) }},
	{name: "key for its owner to read", dir: "serving", files: func(f *fixture) files {
		return goodServing(f).keyMode(0o400)
	}},
	{name: "no key", dir: "serving", want: []string{"F02 error tls.key"},
		files: func(f *fixture) files { return goodServing(f).without(certs.KeyFile) }},
	{name: "no certificate", dir: "serving", want: []string{"F02 error tls.crt"},
		files: func(f *fixture) files { return goodServing(f).without(certs.CertFile).without(certs.BundleFile) }},

	{name: "CRLF", dir: "serving", want: []string{"F04 warning tls.crt"},
		files: edited(certs.CertFile, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))
		})},
	{name: "text before the first block", dir: "serving",
		files: edited(certs.CertFile, func(b []byte) []byte { return append([]byte("subject=CN = a\n"), b...) })},
	{name: "text after the last block", dir: "serving", want: []string{"F04 warning ca.crt"},
		files: edited(certs.BundleFile, func(b []byte) []byte {
			return append(b, "what is this"...)
		})},
	{name: "damaged certificate", dir: "serving", want: []string{"F04 error tls.crt"},
		files: edited(certs.CertFile, func(b []byte) []byte { return b[:len(b)/2] })},
	{name: "empty certificate", dir: "serving", want: []string{"F04 error tls.crt"},
		files: edited(certs.CertFile, func([]byte) []byte { return nil })},
	{name: "bundle that client-go refuses", dir: "serving", text: "client-go refuses the whole file",
		want: []string{"F04 error ca.crt"}, files: edited(certs.BundleFile, func(b []byte) []byte {
			return append(b, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...)
		})},
	{name: "bundle with a damaged block", dir: "serving", want: []string{"F04 error ca.crt"},
		files: edited(certs.BundleFile, func(b []byte) []byte {
			return append(b, "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n"...)
		})},
	{name: "certificate with headers", dir: "serving", want: []string{"C01 error tls.crt", "F04 error ca.crt"},
		files: edited(certs.BundleFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte("-----\n"), []byte("-----\nA: b\n\n"), 1)
		})},
	{name: "key with headers", dir: "serving", text: "which OpenSSL refuses", want: []string{"F04 warning tls.key"},
		files: edited(certs.KeyFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte("-----\n"), []byte("-----\nA: b\n\n"), 1)
		})},
	{name: "bundle with a revocation list", dir: "serving", want: []string{"F04 warning ca.crt"},
		files: edited(certs.BundleFile, func(b []byte) []byte {
			return append(b, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"...)
		})},
	{name: "bundle of OpenSSL's other kind", dir: "serving",
		want: []string{"C01 error tls.crt", "F04 error ca.crt", "F04 warning ca.crt"},
		files: edited(certs.BundleFile, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(" CERTIFICATE"), []byte(" TRUSTED CERTIFICATE"))
		})},
	{name: "key in the bundle", dir: "serving", want: []string{"F04 error ca.crt"}, files: func(f *fixture) files {
		return goodServing(f).edit(certs.BundleFile, func(b []byte) []byte { return append(b, f.servingCA.KeyPEM...) })
	}},
	{name: "encrypted PKCS#8 key", dir: "serving", text: "the key is encrypted", want: []string{"F04 error tls.key"},
		files: edited(certs.KeyFile, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(" PRIVATE KEY"), []byte(" ENCRYPTED PRIVATE KEY"))
		})},
	{name: "encrypted key of OpenSSL's old form", dir: "serving", text: "the key is encrypted",
		want: []string{"F04 error tls.key"}, files: edited(certs.KeyFile, func(b []byte) []byte {
			block, _ := pem.Decode(b)
			block.Type, block.Headers = "EC PRIVATE KEY", map[string]string{"Proc-Type": "4,ENCRYPTED",
				"DEK-Info": "AES-256-CBC,00"}
			return pem.EncodeToMemory(block)
		})},
	{name: "key of a type that only crypto/tls reads", dir: "serving", want: []string{"F04 error tls.key"},
		files: edited(certs.KeyFile, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(" PRIVATE KEY"), []byte(" Ed25519 PRIVATE KEY"))
		})},
	{name: "certificate as key", dir: "serving", want: []string{"F04 error tls.key", "F04 warning tls.key"},
		files: func(f *fixture) files {
			return goodServing(f).edit(certs.KeyFile, func([]byte) []byte { return f.serving.CertPEM })
		}},
	{name: "two keys", dir: "serving", want: []string{"F04 warning tls.key"}, files: func(f *fixture) files {
		return goodServing(f).edit(certs.KeyFile, func(b []byte) []byte { return append(b, f.client.KeyPEM...) })
	}},

	{name: "front proxy of another name", dir: "front-proxy-client", want: []string{"P01 error tls.crt"},
		files: goodClient, opts: Options{AllowedNames: []string{"aggregator"}}},
	{name: "front proxy where any name is allowed", dir: "front-proxy-client", files: goodClient,
		opts: Options{AllowedNames: []string{}}},
	{name: "client that is not given as the front proxy", dir: "pair", files: otherClient},
	{name: "client that is given as the front proxy", dir: "pair", want: []string{"P01 error tls.crt"},
		files: otherClient, opts: Options{AllowedNames: []string{"aggregator"}}},
	{name: "client of konnectivity", dir: "konnectivity-agent", files: otherClient,
		opts: Options{AllowedNames: []string{"aggregator"}}},
}

func at(d time.Duration) Options { return Options{Now: epoch.Add(d)} }

func goodServing(f *fixture) files { return pairFiles(f.serving, &f.servingCA.KeyPair) }

func goodClient(f *fixture) files { return pairFiles(f.client, &f.clientCA.KeyPair) }

func otherClient(f *fixture) files {
	return pairFiles(f.must(f.clientCA.IssueClient(certs.ClientOptions{User: "somebody"})), &f.clientCA.KeyPair)
}

// forged returns a serving key pair of a CA that signs anything.
func forged(f *fixture, change func(*x509.Certificate)) files {
	return pairFiles(f.forge(f.openCA, leaf(change)), f.openCA)
}

// unlimited returns a serving key pair of a CA without name constraints, which would otherwise
// reject unusual names first.
func unlimited(f *fixture, change func(*x509.Certificate)) files {
	template := authority("unlimited")
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = nil, false
	ca := f.forge(nil, template)
	return pairFiles(f.forge(ca, leaf(change)), ca)
}

func edited(name string, change func([]byte) []byte) func(*fixture) files {
	return func(f *fixture) files { return goodServing(f).edit(name, change) }
}

// throughIntermediate returns a chain of root, intermediate and leaf; the server sends the
// intermediate.
func throughIntermediate(f *fixture, pathLength int) files {
	template := authority("root")
	template.MaxPathLen, template.MaxPathLenZero = pathLength, pathLength == 0
	root := f.forge(nil, template)
	between := f.forge(root, authority("between"))
	return pairFiles(f.forge(between, leaf(nil)), root).edit(certs.CertFile,
		func(b []byte) []byte { return append(b, between.CertPEM...) })
}
