"""Records that survive their process: checked when they are read, and written by one process at a time.

A record is a kind, a number, a body in MessagePack, and the CRC-32 of all three (`records`). A *location* names the
records of one journal, sync state or job, which may not exist yet; `open` takes them up for this process, and returns
the *store* that writes them. `file` keeps them in a SQLite file under a lock, `postgres` in a database under an epoch.
Both have the same methods, and one suite tests them.

    result, store = await location.open(begin)        # `begin` reads what is there, and returns the first changes
    await store.commit({("lane", 3): encode(17)})     # on the disk when it returns; None deletes a record
    store.submit({("intent", 3): None})               # with the next commit, in order
    await store.read("page", tuple[bytes, bytes], range(8, 12))
    async with store.transaction() as writer:         # more than fits into memory, all of it or nothing
        await writer.put("page", 8, (ids, rests))
    await store.close()

Damage (a checksum, a number of records or a body that does not fit) is one error, which the location makes.
"""
