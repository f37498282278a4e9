# Replaces the namespaces of the files in examples/rbac with those of OpenShift:
#
#   sed -E -f openshift/namespaces.sed plan.yaml | oc apply -f -
#
# If gpu_cluster names other namespaces, replace them here.
s/(^|[][, ])node-feature-discovery([][,; ]|$)/\1openshift-nfd\2/g
s/(^|[][, ])gpu-operator([][,; ]|$)/\1nvidia-gpu-operator\2/g
