docker run -d --memory=500g --shm-size=16g img bash train.sh
