// Judges certificate chains as Ignition does, a Go program: with crypto/x509, and the options that
// crypto/tls sets in a client. It answers each line of its standard input with one line.
package main

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// The longest handshake message that a client takes in the releases of Go that Ignition is built
// with. Newer ones take a longer one with certificates.
const maxHandshake = 65536

// request is a chain as a server sends it, leaf first, and who is to accept it. Certificates are DER.
type request struct {
	Chain   [][]byte `json:"chain"`
	Trusted [][]byte `json:"trusted"`
	// Without any, only the way to a trusted certificate is judged.
	Hosts []string `json:"hosts"`
	// Seconds since 1970.
	Now int64 `json:"now"`
	// Certificates that are parsed and no more.
	Parse [][]byte `json:"parse"`
}

// answer has an error for each host that the chain is not accepted for, and for each certificate that
// is to be parsed its error, empty where there is none.
type answer struct {
	Errors []string `json:"errors"`
	Parsed []string `json:"parsed"`
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, "verifier:", err)
			os.Exit(1)
		}
		given := answer{Parsed: asked.parsed()}
		if len(asked.Parse) == 0 {
			given.Errors = asked.judge()
		}
		if err := out.Encode(given); err != nil {
			os.Exit(1)
		}
	}
}

func (asked request) judge() []string {
	errors := []string{}
	if size := asked.handshakeSize(); size > maxHandshake {
		return append(errors, fmt.Sprintf("handshake message of %d bytes exceeds %d", size, maxHandshake))
	}
	chain, err := parse(asked.Chain)
	if err != nil {
		return append(errors, err.Error())
	}
	trusted, err := parse(asked.Trusted)
	if err != nil {
		return append(errors, err.Error())
	}
	if len(chain) == 0 {
		return append(errors, "no certificate")
	}
	hosts := asked.Hosts
	if len(hosts) == 0 {
		hosts = []string{""}
	}
	for _, host := range hosts {
		options := x509.VerifyOptions{
			Roots:         x509.NewCertPool(),
			Intermediates: x509.NewCertPool(),
			DNSName:       host,
			CurrentTime:   time.Unix(asked.Now, 0),
		}
		for _, certificate := range trusted {
			options.Roots.AddCert(certificate)
		}
		for _, certificate := range chain[1:] {
			options.Intermediates.AddCert(certificate)
		}
		if _, err := chain[0].Verify(options); err != nil {
			errors = append(errors, err.Error())
		}
	}
	return errors
}

func (asked request) parsed() []string {
	errors := make([]string, len(asked.Parse))
	for index, der := range asked.Parse {
		if _, err := x509.ParseCertificate(der); err != nil {
			errors[index] = err.Error()
		}
	}
	return errors
}

// handshakeSize is the length of the message that carries the chain in TLS 1.3 (RFC 8446 section
// 4.4.2), its own header not counted.
func (asked request) handshakeSize() int {
	size := 1 + 3
	for _, der := range asked.Chain {
		size += 3 + len(der) + 2
	}
	return size
}

func parse(ders [][]byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for _, der := range ders {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		certificates = append(certificates, certificate)
	}
	return certificates, nil
}
