"""The command svc-async.

`app` lists the commands; each is defined in a module of `commands`. Those that send a file describe a job (`jobs.spec`)
in `upload_command`, which starts it in `file_job`. Results go to stdout, messages to stderr.
"""
