export RAY_gcs_rpc_server_reconnect_timeout_s=20
ray start --head --num-cpus=2
python job.py 60
