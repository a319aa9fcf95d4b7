// Tells what is in a keystore or a truststore, by the packages with which cert-manager writes them: the store comes on
// standard input, its name in the secret and its password are the arguments. What is told is one object of JSON, with
// certificates as base64 of DER.
package main

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	jks "github.com/pavlo-v-chernykh/keystore-go/v4"
	"software.sslmate.com/src/go-pkcs12"
)

type contents struct {
	// The key's certificate and what is kept with it.
	Chain [][]byte `json:"chain"`
	// What is trusted for itself.
	Trusted [][]byte `json:"trusted"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: stores NAME PASSWORD <STORE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(name, password string) error {
	store, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var found contents
	switch name {
	case "keystore.jks", "truststore.jks":
		found, err = ofJava(store, []byte(password))
	case "keystore.p12":
		found, err = keyOfPKCS12(store, password)
	case "truststore.p12":
		var trusted []*x509.Certificate
		trusted, err = pkcs12.DecodeTrustStore(store, password)
		found.Trusted = encoded(trusted)
	default:
		err = errors.New("no name of a store")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func ofJava(store, password []byte) (contents, error) {
	var found contents
	entries := jks.New()
	if err := entries.Load(bytes.NewReader(store), password); err != nil {
		return found, err
	}
	for _, alias := range entries.Aliases() {
		if entries.IsTrustedCertificateEntry(alias) {
			entry, err := entries.GetTrustedCertificateEntry(alias)
			if err != nil {
				return found, err
			}
			found.Trusted = append(found.Trusted, entry.Certificate.Content)
			continue
		}
		entry, err := entries.GetPrivateKeyEntry(alias, password)
		if err != nil {
			return found, err
		}
		for _, certificate := range entry.CertificateChain {
			found.Chain = append(found.Chain, certificate.Content)
		}
		key, err := x509.ParsePKCS8PrivateKey(entry.PrivateKey)
		if err != nil {
			return found, err
		}
		leaf, err := x509.ParseCertificate(found.Chain[0])
		if err != nil {
			return found, err
		}
		if err := belong(key, leaf); err != nil {
			return found, err
		}
	}
	return found, nil
}

func keyOfPKCS12(store []byte, password string) (contents, error) {
	key, leaf, others, err := pkcs12.DecodeChain(store, password)
	if err != nil {
		return contents{}, err
	}
	chain := append([]*x509.Certificate{leaf}, others...)
	return contents{Chain: encoded(chain)}, belong(key, leaf)
}

func encoded(certificates []*x509.Certificate) [][]byte {
	var all [][]byte
	for _, certificate := range certificates {
		all = append(all, certificate.Raw)
	}
	return all
}

// Whether a key is the one of a certificate.
func belong(key any, certificate *x509.Certificate) error {
	signer, known := key.(crypto.Signer)
	if !known {
		return fmt.Errorf("a key that does not sign: %T", key)
	}
	public, known := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !known || !public.Equal(certificate.PublicKey) {
		return errors.New("the key is another one than its certificate's")
	}
	return nil
}
