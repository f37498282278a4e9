# Replaces the namespaces in the files of examples/rbac with the namespaces on OpenShift:
#
#   sed -E -f openshift/namespaces.sed plan.yaml | oc apply -f -
#
# If gpu_cluster names other namespaces, replace them here.
s/(^|[][, ])node-feature-discovery([][,; ]|$)/\1openshift-nfd\2/g
s/(^|[][, ])gpu-operator([][,; ]|$)/\1nvidia-gpu-operator\2/g
