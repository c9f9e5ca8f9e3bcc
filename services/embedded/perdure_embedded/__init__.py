"""All services in one process, on an embedded PostgreSQL, an in-process bus and a folder as object
store.
"""
