"""Jobs on a cluster of Dask workers. Needs the extra `cluster`, which is imported only here."""
