package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// startControlPlane starts etcd, the API server, the controller manager and the
// scheduler on this machine, and waits until the API server is ready.
func (c *cluster) startControlPlane() error {
	if err := c.makeCertificates(); err != nil {
		return err
	}
	pki := func(file string) string { return c.dir("pki", file) }
	etcd := fmt.Sprintf("http://%s:2379", c.loopbackIP())
	peer := fmt.Sprintf("http://%s:2380", c.loopbackIP())
	if err := c.start("etcd", c.dir("etcd.log"), "", nil, c.bin["etcd"],
		"--name=dev", "--data-dir="+c.dir("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=dev="+peer); err != nil {
		return err
	}
	if err := os.WriteFile(c.dir("audit-policy.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write audit policy: %w", err)
	}
	if err := c.start("kube-apiserver", c.dir("kube-apiserver.log"), "", nil, c.bin["kube-apiserver"],
		"--etcd-servers="+etcd, "--bind-address="+c.hostIP(), "--advertise-address="+c.hostIP(), "--secure-port=6443",
		"--service-cluster-ip-range="+c.serviceRange(), "--allow-privileged", "--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP",
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"), "--client-ca-file="+pki("ca.crt"),
		"--kubelet-client-certificate="+pki("admin.crt"), "--kubelet-client-key="+pki("admin.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+pki("sa.key"),
		"--service-account-signing-key-file="+pki("sa.key"),
		"--requestheader-client-ca-file="+pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+pki("front-proxy-client.crt"), "--proxy-client-key-file="+pki("front-proxy-client.key"),
		"--enable-aggregator-routing=true", "--audit-policy-file="+c.dir("audit-policy.yaml"), "--audit-log-path="+c.auditLog(),
		"--default-not-ready-toleration-seconds=30", "--default-unreachable-toleration-seconds=30"); err != nil {
		return err
	}
	if err := c.waitForAPI(); err != nil {
		return err
	}
	if err := c.start("kube-controller-manager", c.dir("kube-controller-manager.log"), "", nil, c.bin["kube-controller-manager"],
		"--kubeconfig="+c.dir("controller-manager.kubeconfig"), "--leader-elect=false", "--use-service-account-credentials",
		"--bind-address="+c.loopbackIP(), "--root-ca-file="+pki("ca.crt"), "--service-account-private-key-file="+pki("sa.key"),
		"--cluster-signing-cert-file="+pki("ca.crt"), "--cluster-signing-key-file="+pki("ca.key"),
		"--node-monitor-grace-period=12s", "--node-monitor-period=2s", "--kube-api-qps=200", "--kube-api-burst=400"); err != nil {
		return err
	}
	return c.start("kube-scheduler", c.dir("kube-scheduler.log"), "", nil, c.bin["kube-scheduler"],
		"--kubeconfig="+c.dir("scheduler.kubeconfig"), "--leader-elect=false", "--bind-address="+c.loopbackIP())
}

// auditPolicy logs every request once, when it is answered, without bodies. The
// benchmarks count the operator's requests in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy"]
- level: None
  userGroups: ["system:nodes", "system:serviceaccounts:kube-system"]
- level: Metadata
`

// makeCertificates makes the authorities, every certificate and every
// kubeconfig.
func (c *cluster) makeCertificates() error {
	dir := c.dir("pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make folder of certificates: %w", err)
	}
	ca, err := newAuthority(dir, "ca")
	if err != nil {
		return err
	}
	front, err := newAuthority(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	type request struct{ file, user, group string }
	requests := []request{
		{"admin", "kubernetes-admin", "system:masters"},
		{"controller-manager", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"kube-proxy", "system:kube-proxy", ""},
		{"sa", "service-accounts", ""},
	}
	for n := 1; n <= c.Nodes; n++ {
		requests = append(requests, request{c.nodeName(n), "system:node:" + c.nodeName(n), "system:nodes"})
	}
	for _, r := range requests {
		if err := ca.issue(r.file, r.user, r.group, nil); err != nil {
			return err
		}
		if r.file == "sa" {
			continue
		}
		if err := writeKubeconfig(c.dir(r.file+".kubeconfig"), c.server(), dir, r.file); err != nil {
			return err
		}
	}
	if err := os.Rename(c.dir("admin.kubeconfig"), c.kubeconfig()); err != nil {
		return fmt.Errorf("name the kubeconfig: %w", err)
	}
	if err := front.issue("front-proxy-client", "front-proxy-client", "", nil); err != nil {
		return err
	}
	return ca.issue("apiserver", "kube-apiserver", "",
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
		c.hostIP(), c.kubernetesIP(), "127.0.0.1")
}

// waitForAPI waits until the API server calls itself ready.
func (c *cluster) waitForAPI() error {
	pair, err := tls.LoadX509KeyPair(c.dir("pki", "admin.crt"), c.dir("pki", "admin.key"))
	if err != nil {
		return fmt.Errorf("load certificate: %w", err)
	}
	pem, err := os.ReadFile(c.dir("pki", "ca.crt"))
	if err != nil {
		return fmt.Errorf("read authority: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}}
	defer client.CloseIdleConnections()
	ready := waitFor(90*time.Second, func() bool {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.server()+"/readyz", nil)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return !c.Processes["kube-apiserver"].alive() || !c.Processes["etcd"].alive()
		}
		_ = response.Body.Close() // its content does not matter
		return response.StatusCode == http.StatusOK
	})
	if bad := c.unhealthy(); len(bad) > 0 {
		return fmt.Errorf("%s; see the logs in %s", bad[0], c.dir())
	}
	if !ready {
		return fmt.Errorf("the API server did not become ready in 90 s; see %s", c.dir("kube-apiserver.log"))
	}
	return nil
}

// startAddons starts cluster DNS and the volume provisioner beside the nodes,
// and applies the objects that belong to them.
func (c *cluster) startAddons() error {
	corefile := fmt.Sprintf(`.:53 {
    bind %s
    errors
    cache 5
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %s devcluster
        pods insecure
        ttl 5
    }
}
`, c.hostIP(), c.kubeconfig())
	if err := os.WriteFile(c.dir("Corefile"), []byte(corefile), 0o600); err != nil {
		return fmt.Errorf("write Corefile: %w", err)
	}
	if err := c.start("coredns", c.dir("coredns.log"), "", nil, c.bin["coredns"], "-conf", c.dir("Corefile")); err != nil {
		return err
	}
	if err := c.start("provisioner", c.dir("provisioner.log"), "", nil, c.bin["provisioner"],
		"-kubeconfig="+c.kubeconfig(), "-root="+c.dir()); err != nil {
		return err
	}
	file := c.dir("addons.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf(addons, c.dnsIP(), c.hostIP())), 0o600); err != nil {
		return fmt.Errorf("write addons: %w", err)
	}
	_, err := command(c.bin["kubectl"], "--kubeconfig="+c.kubeconfig(), "apply", "-f", file)
	return err
}

// addons: the Service of the cluster DNS, which runs beside the nodes, the
// default StorageClass, and one whose volumes cannot grow.
const addons = `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: %s
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns, endpointslice.kubernetes.io/managed-by: devcluster}
addressType: IPv4
endpoints: [{addresses: [%s], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: devcluster/folder
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fixed}
provisioner: devcluster/folder
reclaimPolicy: Delete
volumeBindingMode: WaitForFirstConsumer
`
