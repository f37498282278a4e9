module lab.invalid/openshift-crds

go 1.26.0

require (
	github.com/openshift/api v0.0.0-20260205045418-81371d13d1fc
	github.com/openshift/cluster-autoscaler-operator v0.0.1-0.20260608074635-5c8643284941
)
