package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster. All files are in dir:
// NAME.crt and NAME.key.
type authority struct {
	dir, name string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

// newAuthority makes a self-signed certificate authority.
func newAuthority(dir, name string) (*authority, error) {
	a := &authority{dir: dir, name: name}
	template := certificate(pkix.Name{CommonName: name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	cert, key, err := a.sign(template, name)
	a.cert, a.key = cert, key
	return a, err
}

func certificate(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader does not fail
	return &x509.Certificate{
		SerialNumber: serial, Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
}

// issue signs a certificate for a user or server, and writes it and its key.
func (a *authority) issue(file, user, group string, names []string, ips ...string) error {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	template := certificate(subject)
	template.DNSNames = names
	for _, ip := range ips {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	_, _, err := a.sign(template, file)
	return err
}

// sign makes a key, signs the template (by itself, for an authority that has no
// certificate yet) and writes both.
func (a *authority) sign(template *x509.Certificate, file string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key %s: %w", file, err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate %s: %w", file, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key %s: %w", file, err)
	}
	for ending, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(a.dir, file+ending), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, nil, fmt.Errorf("write %s%s: %w", file, ending, err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read back certificate %s: %w", file, err)
	}
	return cert, key, nil
}

// writeKubeconfig writes a kubeconfig that logs in with an issued certificate.
func writeKubeconfig(path, server, certs, file string) error {
	data := map[string]string{}
	for field, name := range map[string]string{"ca": "ca.crt", "crt": file + ".crt", "key": file + ".key"} {
		content, err := os.ReadFile(filepath.Join(certs, name))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		data[field] = base64.StdEncoding.EncodeToString(content)
	}
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: devcluster
  cluster: {server: %q, certificate-authority-data: %s}
users:
- name: devcluster
  user: {client-certificate-data: %s, client-key-data: %s}
contexts:
- name: devcluster
  context: {cluster: devcluster, user: devcluster}
current-context: devcluster
`, server, data["ca"], data["crt"], data["key"])
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
