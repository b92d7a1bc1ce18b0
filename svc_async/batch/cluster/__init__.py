"""What lists know of clusters; the package `svc_async.cluster` does the rest."""
